// Tests of the SIGBUS guard.
//
// Goal: a lost page neither kills the process nor is delivered as data, and any other
// SIGBUS reaches its previous handler, in any order of installation.
// Method: truncate files before and while several threads read them; install other
// handlers before and after the guard, in separate processes if they exit.

#include "file/guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"
#include "records.h"

namespace fastrec {
namespace {

const auto kPageBytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

std::string content_of(std::size_t n_pages) {
  std::string content(n_pages * kPageBytes, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) {
    content[i] = static_cast<char>(1 + i % 251);  // never zero
  }
  return content;
}

class GuardTest : public ::testing::Test {
 protected:
  std::string write(const std::string& content) {
    return directory_.write("file", content);
  }

  // The result of copy(), or "lost" if it throws.
  static std::string copied(const FileView& view, std::uint64_t offset,
                            std::uint64_t length) {
    Buffer buffer;
    try {
      return std::string(as_text(view.copy(offset, length, &buffer)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::kFileChanged);
      EXPECT_EQ(error.path, view.name());
      return "lost";
    }
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(GuardTest, LostPagesAreErrorsAndTheRestIsReadable) {
  const std::string content = content_of(6);
  const std::string path = write(content);
  const FileView view(path, Io::kMmap);
  std::filesystem::resize_file(path, 3 * kPageBytes);
  EXPECT_EQ(copied(view, 3 * kPageBytes - 10, 10),
            content.substr(0, 3 * kPageBytes).substr(3 * kPageBytes - 10));
  EXPECT_EQ(copied(view, 4 * kPageBytes, 10), "lost");
  EXPECT_EQ(copied(view, 3 * kPageBytes - 10, 20), "lost");
  EXPECT_EQ(copied(view, 5 * kPageBytes, 10), "lost");
  EXPECT_EQ(copied(view, 0, 10), content.substr(0, 10));
}

TEST_F(GuardTest, TheErrorHasTheOffsetAndTheNewSize) {
  const std::string path = write(content_of(4));
  const FileView view(path, Io::kMmap, "the name");
  std::filesystem::resize_file(path, kPageBytes);
  Buffer buffer;
  try {
    (void)view.copy(100, 3 * kPageBytes, &buffer);
    FAIL() << "zeros were delivered";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, "the file was shortened while it was mapped (now " +
                                std::to_string(kPageBytes) + " bytes)");
    EXPECT_EQ(error.path, "the name");
    EXPECT_EQ(error.offset, kPageBytes);
  }
}

TEST_F(GuardTest, RestoredPagesStayInvalid) {
  const std::string content = content_of(4);
  const std::string path = write(content);
  const FileView view(path, Io::kMmap);
  std::filesystem::resize_file(path, kPageBytes);
  EXPECT_EQ(copied(view, 2 * kPageBytes, 10), "lost");
  write(content);
  EXPECT_EQ(copied(view, 2 * kPageBytes, 10), "lost");
  EXPECT_EQ(copied(view, 0, kPageBytes), content.substr(0, kPageBytes));
}

TEST_F(GuardTest, AThreadWithAllSignalsBlockedContinues) {
  const std::string path = write(content_of(4));
  const FileView view(path, Io::kMmap);
  std::filesystem::resize_file(path, kPageBytes);
  std::string read;
  std::thread thread([&] {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    install_guard();
    read = copied(view, 2 * kPageBytes, 10);
  });
  thread.join();
  EXPECT_EQ(read, "lost");
}

TEST_F(GuardTest, ALostPageDoesNotAffectOtherMappings) {
  const std::string content = content_of(4);
  const std::string other = directory_.write("other", content);
  const std::string path = write(content);
  std::vector<std::unique_ptr<FileView>> others;
  for (int i = 0; i < 700; ++i) {  // more than one piece of the table
    others.push_back(std::make_unique<FileView>(other, Io::kMmap));
  }
  const FileView view(path, Io::kMmap);
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(copied(view, 0, 10), "lost");
  for (const auto& intact : others) {
    EXPECT_EQ(copied(*intact, 0, content.size()), content);
  }
  others.clear();
  const FileView again(other, Io::kMmap);  // reuses an entry
  EXPECT_EQ(copied(again, 0, content.size()), content);
}

TEST_F(GuardTest, ThreadsReadWhileFilesAreTruncatedAndMapped) {
  constexpr int kRounds = 60;
  const std::string content = content_of(64);
  std::mt19937 random(1);
  std::atomic<bool> is_over{false};
  std::thread mapping([&] {  // keeps modifying the table
    const std::string path = directory_.write("mapped", content);
    while (!is_over) {
      const FileView view(path, Io::kMmap);
      EXPECT_EQ(copied(view, 0, content.size()), content);
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    const std::string path = write(content);
    const FileView view(path, Io::kMmap);
    const auto read = [&](unsigned seed) {
      std::mt19937 draw(seed);
      for (int i = 0; i < 300; ++i) {
        const std::size_t offset = draw() % content.size();
        const std::size_t length =
            std::min<std::size_t>(content.size() - offset, draw() % 9000);
        const std::string got = copied(view, offset, length);
        if (got == "lost") continue;
        // The rest of the last page of a file reads as zeros.
        const std::size_t n_here = std::min(got.find('\0'), got.size());
        EXPECT_EQ(got.substr(0, n_here), content.substr(offset, n_here));
        EXPECT_LT(got.size() - n_here, kPageBytes);
      }
    };
    std::thread first(read, random()), second(read, random());
    std::filesystem::resize_file(path, random() % content.size());
    first.join();
    second.join();
  }
  is_over = true;
  mapping.join();
}

TEST_F(GuardTest, AForkedProcessIsGuarded) {
  const std::string content = content_of(4);
  const std::string path = write(content);
  const FileView view(path, Io::kMmap);
  const int child = ::fork();
  if (child == 0) {
    std::filesystem::resize_file(path, kPageBytes);
    const bool is_lost = copied(view, 2 * kPageBytes, 10) == "lost";
    const std::string own = directory_.write("own", content);
    const FileView own_view(own, Io::kMmap);
    std::filesystem::resize_file(own, 0);
    ::_exit(is_lost && copied(own_view, 0, 10) == "lost" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(copied(view, 2 * kPageBytes, 10), "lost");
}

// A lost page in a mapping without a guard.
volatile const char* foreign_page(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CREAT | O_TRUNC, 0600);
  void* page = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  return static_cast<const char*>(page);
}

sigjmp_buf landing;
std::atomic<const void*> fault_address{nullptr};

void jump(int, siginfo_t* info, void*) {
  fault_address = info->si_addr;
  siglongjmp(landing, 1);
}

void end_with_3(int) { ::_exit(3); }

// Like Python's faulthandler: restores the previous handler, prints, and raises the
// signal again.
struct sigaction before_reporter;
void report(int signal) {
  ::sigaction(signal, &before_reporter, nullptr);
  (void)!::write(STDERR_FILENO, "reported\n", 9);
  ::raise(signal);
}

void install(void (*handler)(int), struct sigaction* previous = nullptr) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_NODEFER;
  ::sigaction(SIGBUS, &action, previous);
}

using GuardDeathTest = GuardTest;

TEST_F(GuardDeathTest, AnUnrelatedFaultKillsTheProcess) {
  const std::string path = write(content_of(2));
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, SIG_DFL);
        const FileView view(path, Io::kMmap);
        (void)*foreign_page(directory_.file("foreign"));
      },
      ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, SIG_DFL);
        const FileView view(path, Io::kMmap);
        ::raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(GuardDeathTest, HandlersBeforeAndAfterTheGuardReceiveUnrelatedFaults) {
  const auto lose_a_page = [&] {  // which no other handler receives
    const std::string path = write(content_of(2));
    const FileView view(path, Io::kMmap);
    std::filesystem::resize_file(path, 0);
    install_guard();
    if (copied(view, 0, 10) != "lost") ::_exit(4);
  };
  EXPECT_EXIT(
      {
        install(&end_with_3);
        lose_a_page();
        (void)*foreign_page(directory_.file("foreign"));
      },
      ::testing::ExitedWithCode(3), "");
  EXPECT_EXIT(
      {
        const FileView view(directory_.write("first", content_of(1)), Io::kMmap);
        install(&end_with_3);
        lose_a_page();
        (void)*foreign_page(directory_.file("foreign"));
      },
      ::testing::ExitedWithCode(3), "");
}

TEST_F(GuardDeathTest, AHandlerThatRestoresAndRaisesIsCalledOnce) {
  for (const bool is_first : {true, false}) {
    const std::string path = write(content_of(2));
    EXPECT_EXIT(
        {
          ::signal(SIGBUS, SIG_DFL);
          if (is_first) install(&report, &before_reporter);
          const FileView view(path, Io::kMmap);
          if (!is_first) install(&report, &before_reporter);
          std::filesystem::resize_file(path, 0);
          install_guard();
          if (copied(view, 0, 10) != "lost") ::_exit(4);
          (void)*foreign_page(directory_.file("foreign"));
        },
        ::testing::KilledBySignal(SIGBUS),
        "^reported\n(qemu|$)");  // qemu prints a line
  }
}

TEST_F(GuardDeathTest, AlternatingHandlersKeepTheGuardInFront) {
  const std::string path = write(content_of(2));
  EXPECT_EXIT(
      {
        const FileView view(path, Io::kMmap);
        for (int i = 0; i < 50; ++i) {
          struct sigaction previous;
          install(&end_with_3, &previous);
          install_guard();
          ::sigaction(SIGBUS, &previous, nullptr);
          install_guard();
        }
        install(&end_with_3);
        install_guard();
        std::filesystem::resize_file(path, 0);
        if (copied(view, 0, 10) != "lost") ::_exit(4);
        (void)*foreign_page(directory_.file("foreign"));
      },
      ::testing::ExitedWithCode(3), "");
}

TEST_F(GuardDeathTest, AHandlerWithSiginfoReceivesItAndMayContinue) {
  EXPECT_EXIT(
      {
        struct sigaction action = {};
        action.sa_sigaction = &jump;
        action.sa_flags = SA_SIGINFO;
        ::sigaction(SIGBUS, &action, nullptr);
        const std::string path = write(content_of(2));
        const FileView view(path, Io::kMmap);
        volatile const char* page = foreign_page(directory_.file("foreign"));
        static int i;  // outlives the jump
        for (i = 0; i < 3; ++i) {
          if (sigsetjmp(landing, 1) == 0) {
            (void)page[i];
            ::_exit(4);
          }
          if (fault_address != const_cast<const char*>(page) + i) ::_exit(5);
        }
        std::filesystem::resize_file(path, 0);
        ::_exit(copied(view, 0, 10) == "lost" ? 0 : 6);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GuardDeathTest, WithoutTheGuardALostPageKillsTheProcess) {
#if defined(FASTREC_TESTS_ARE_EMULATED)
  GTEST_SKIP() << "an emulated program cannot restart itself";
#endif
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // restarts the program
  const std::string parent = std::filesystem::temp_directory_path().string();
  ::setenv("TMPDIR", directory_.file("").c_str(), 1);  // killed, it leaves its files
  ::setenv("FASTREC_SIGBUS_GUARD", "0", 1);
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, SIG_DFL);
        const std::string path = write(content_of(2));
        const FileView view(path, Io::kMmap);
        std::filesystem::resize_file(path, 0);
        (void)copied(view, 0, 10);
      },
      ::testing::KilledBySignal(SIGBUS), "");
  ::setenv("FASTREC_SIGBUS_GUARD", "yes", 1);
  EXPECT_EXIT(
      {
        try {
          const FileView view(write("x"), Io::kMmap);
        } catch (const std::invalid_argument&) {
          ::_exit(3);
        }
      },
      ::testing::ExitedWithCode(3), "");
  ::unsetenv("FASTREC_SIGBUS_GUARD");
  ::setenv("TMPDIR", parent.c_str(), 1);
}

}  // namespace
}  // namespace fastrec
