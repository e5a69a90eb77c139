// FileWriter: records -> one plain TFRecord file, which appears whole or not at all.
//
//   write_record   ->  buffer (1 MiB)  ->  .NAME.PID-N.tmp, in the directory of NAME
//   close          ->  fsync, and the file bears its name
//   abandon, or any failure, or destruction without close  ->  the file is removed
//
// Invariants
//   * What bears the final name was written completely and has reached the disk.
//   * Without Existing::kReplace no file is ever replaced, also not one that came into
//     being since the writer did.
//   * After a failure the writer is of no more use: whatever is asked of it, close()
//     included, reports the same error again, so that it cannot be missed.
//
// A process that was killed leaves its temporary file, whose complete records are good.
// One thread at a time may use a writer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "record/append.h"

namespace fastrec {

// What to do if the name is taken.
enum class Existing : std::uint8_t { kRefuse, kReplace };

class FileWriter {
 public:
  // Creates the temporary file. Throws IoError: EEXIST if there is a file at `path`
  // that may not be replaced, EISDIR or EINVAL if what is there is not a regular file.
  // A symbolic link is followed if it leads to a file to replace.
  FileWriter(std::string path, Existing existing);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Writes one record. Throws IoError if the disk refuses, std::invalid_argument if the
  // writer is closed.
  void write_record(Bytes payload);

  // The same for a payload that is made in the buffer; see append_frame().
  template <typename Store>
  void write_record(std::uint64_t length, const Store& store) {
    check_open();
    append_frame(length, store, &buffer_);
    end_record();
  }

  // Whether a record of `length` bytes can be written without touching the disk.
  bool fits(std::uint64_t length) const noexcept;

  // Publishes the file under its name; nothing happens if that or abandon() was done
  // before. Throws IoError, after which nothing bears the name.
  void close();

  // Gives the file up; nothing happens after close(). Removes it, unless this process
  // is a fork of the one that made it.
  void abandon() noexcept;

  bool closed() const noexcept { return descriptor_ < 0; }
  const std::string& path() const noexcept { return path_; }
  std::uint64_t n_records() const noexcept { return n_records_; }
  // Bytes of the file so far, those that are still in the buffer included.
  std::uint64_t n_bytes() const noexcept { return n_written_ + buffer_.size(); }

 private:
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

  void create_temporary();
  void check_open() const;
  void end_record();
  void flush();
  void publish();
  void check(int result);
  [[noreturn]] void fail(int errno_value);

  std::string path_;       // as given, for messages
  std::string target_;     // absolute, so that chdir() does not move it
  std::string temporary_;  // absolute
  Existing existing_;
  int descriptor_ = -1;  // negative: closed
  int failure_ = 0;      // errno of what ended this writer
  std::int64_t owner_;   // the process that may write and remove the file
  std::vector<std::uint8_t> buffer_;
  std::uint64_t n_records_ = 0;
  std::uint64_t n_written_ = 0;  // bytes
};

}  // namespace fastrec
