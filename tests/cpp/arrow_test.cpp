// Arrow structs.
//
// Goal: a consumer may move the children of a struct, and release it and them in any
// order and on any thread; memory lives exactly as long as it is referenced. Method: a
// consumer that follows the specification, and weak pointers to blocks.

#include "batch/arrow.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fastrec {
namespace {

// A buffer of int64, and a weak pointer to its block.
struct Numbers {
  explicit Numbers(const std::vector<std::int64_t>& numbers) {
    const std::size_t size = numbers.size() * sizeof(std::int64_t);
    const auto block = std::make_shared<Block>(size);
    std::memcpy(block->data(), numbers.data(), size);
    array = {block, block->data()};
    watch = block;
  }
  Array array;
  std::weak_ptr<Block> watch;
};

ArrowField int64_field(const std::string& name) { return {name, "l", true, {}}; }

ArrowValues int64_values(Array* buffer, std::int64_t length) {
  ArrowValues values;
  values.length = length;
  values.buffers = {{}, std::move(*buffer)};
  return values;
}

// Rows {a: [[1, 2], [3]], b: [[4], []]} of lists, with one block for each buffer.
struct Rows {
  Rows() {
    values.length = 2;
    values.buffers = {{}};
    for (auto* list : {&a, &b}) {
      ArrowValues column;
      column.length = 2;
      column.buffers = {{}, std::move(list->first.array)};
      column.children = {int64_values(&list->second.array, 3)};
      values.children.push_back(std::move(column));
    }
  }
  std::pair<Numbers, Numbers> a{Numbers({0, 2, 3}), Numbers({1, 2, 3})};
  std::pair<Numbers, Numbers> b{Numbers({0, 1, 1}), Numbers({4})};
  ArrowValues values;
};

// Moves a struct as the specification requires.
template <typename Struct>
Struct moved_out(Struct* from) {
  Struct taken = *from;
  from->release = nullptr;
  return taken;
}

std::int64_t number_at(const ArrowArray& array, std::size_t i) {
  return static_cast<const std::int64_t*>(array.buffers[1])[i];
}

TEST(ArrowSchema, SaysWhatTheFieldSays) {
  const ArrowField row{"", "+s", false, {{"x", "+L", true, {int64_field("item")}}}};
  ArrowSchema schema;
  std::memset(&schema, 0x55, sizeof schema);  // old contents are overwritten
  export_field(row, &schema);
  EXPECT_STREQ(schema.format, "+s");
  EXPECT_STREQ(schema.name, "");
  EXPECT_EQ(schema.metadata, nullptr);
  EXPECT_EQ(schema.dictionary, nullptr);
  EXPECT_EQ(schema.flags, 0);
  ASSERT_EQ(schema.n_children, 1);
  const ArrowSchema& x = *schema.children[0];
  EXPECT_STREQ(x.format, "+L");
  EXPECT_STREQ(x.name, "x");
  EXPECT_EQ(x.flags, ARROW_FLAG_NULLABLE);
  ASSERT_EQ(x.n_children, 1);
  EXPECT_STREQ(x.children[0]->format, "l");
  schema.release(&schema);
  EXPECT_EQ(schema.release, nullptr);
}

TEST(ArrowSchema, AChildOutlivesItsParent) {
  ArrowSchema schema;
  export_field({"", "+s", false, {int64_field("a"), int64_field("b")}}, &schema);
  ArrowSchema b = moved_out(schema.children[1]);
  schema.release(&schema);
  EXPECT_STREQ(b.name, "b");
  b.release(&b);
  EXPECT_EQ(b.release, nullptr);
}

TEST(ArrowArray, HoldsItsBlocksUntilItIsReleased) {
  Rows rows;
  ArrowArray array;
  std::memset(&array, 0x55, sizeof array);
  export_values(std::move(rows.values), &array);
  EXPECT_EQ(array.length, 2);
  EXPECT_EQ(array.null_count, 0);
  EXPECT_EQ(array.offset, 0);
  EXPECT_EQ(array.dictionary, nullptr);
  ASSERT_EQ(array.n_buffers, 1);
  EXPECT_EQ(array.buffers[0], nullptr);
  ASSERT_EQ(array.n_children, 2);
  const ArrowArray& a = *array.children[0];
  ASSERT_EQ(a.n_buffers, 2);
  EXPECT_EQ(number_at(a, 1), 2);
  EXPECT_EQ(number_at(*a.children[0], 2), 3);
  EXPECT_EQ(a.children[0]->buffers[1], rows.a.second.watch.lock()->data());
  array.release(&array);
  EXPECT_EQ(array.release, nullptr);
  for (const auto* list : {&rows.a, &rows.b}) {
    EXPECT_TRUE(list->first.watch.expired());
    EXPECT_TRUE(list->second.watch.expired());
  }
}

TEST(ArrowArray, AChildOutlivesItsParentAndHoldsNothingElse) {
  Rows rows;
  ArrowArray array;
  export_values(std::move(rows.values), &array);
  ArrowArray a = moved_out(array.children[0]);
  array.release(&array);
  EXPECT_TRUE(rows.b.first.watch.expired());
  EXPECT_TRUE(rows.b.second.watch.expired());
  EXPECT_EQ(number_at(*a.children[0], 0), 1);

  ArrowArray values = moved_out(a.children[0]);
  a.release(&a);
  EXPECT_TRUE(rows.a.first.watch.expired());
  EXPECT_EQ(number_at(values, 2), 3);
  values.release(&values);
  EXPECT_TRUE(rows.a.second.watch.expired());
}

TEST(ArrowArray, AChildMayBeReleasedBeforeItsParent) {
  Rows rows;
  ArrowArray array;
  export_values(std::move(rows.values), &array);
  ArrowArray* a = array.children[0];
  a->release(a);
  EXPECT_TRUE(rows.a.second.watch.expired());
  EXPECT_FALSE(rows.b.second.watch.expired());
  array.release(&array);
  EXPECT_TRUE(rows.b.second.watch.expired());
}

TEST(ArrowArray, BuffersMayShareABlock) {
  const auto block = std::make_shared<Block>(64);
  ArrowValues values;
  values.buffers = {{}};
  for (std::size_t i = 0; i < 2; ++i) {
    Array part{block, block->data() + i * 32};
    values.children.push_back(int64_values(&part, 4));
  }
  ArrowArray array;
  export_values(std::move(values), &array);
  EXPECT_EQ(block.use_count(), 3);
  ArrowArray first = moved_out(array.children[0]);
  array.release(&array);
  EXPECT_EQ(block.use_count(), 2);
  first.release(&first);
  EXPECT_EQ(block.use_count(), 1);
}

TEST(ArrowArray, ThreadsMayReleaseWhatAnotherMade) {
  const auto pool = std::make_shared<BlockPool>(1 << 20);
  for (int round = 0; round < 50; ++round) {
    ArrowValues values;
    values.buffers = {{}};
    const auto block = pool->take(4096);
    std::memset(block->data(), round, block->size());
    constexpr std::size_t kChildren = 4;
    for (std::size_t i = 0; i < kChildren; ++i) {
      Array part{block, block->data()};
      values.children.push_back(int64_values(&part, 8));
    }
    ArrowArray array;
    export_values(std::move(values), &array);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kChildren; ++i) {
      threads.emplace_back([child = moved_out(array.children[i]), round]() mutable {
        EXPECT_EQ(number_at(child, 7) & 0xFF, round);
        child.release(&child);
      });
    }
    threads.emplace_back([&array] { array.release(&array); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(block.use_count(), 1);
  }
  EXPECT_EQ(pool->stats().n_allocated, 1u);
}

// Batches of one column of one number each; then calls `end`, which may throw.
class Counting {
 public:
  Counting(std::int64_t n, std::optional<int> errno_value, std::weak_ptr<int>* watch)
      : n_(n), errno_value_(errno_value), alive_(std::make_shared<int>(0)) {
    *watch = alive_;
  }

  bool operator()(ArrowValues* values) {
    ++*alive_;
    if (n_asked_++ < n_) {
      Numbers number({n_asked_});
      *values = int64_values(&number.array, 1);
      return true;
    }
    if (!errno_value_) return false;
    if (*errno_value_ == ENOMEM) throw std::bad_alloc();
    if (*errno_value_ == EIO) throw std::runtime_error("the disk is gone");
    throw ArrowStreamError(*errno_value_, "record 3 is damaged");
  }

 private:
  std::int64_t n_, n_asked_ = 0;
  std::optional<int> errno_value_;
  std::shared_ptr<int> alive_;
};

ArrowArrayStream counting(std::int64_t n, std::optional<int> errno_value,
                          std::weak_ptr<int>* watch) {
  ArrowArrayStream stream;
  std::memset(&stream, 0x55, sizeof stream);
  export_batches(int64_field("x"), Counting(n, errno_value, watch), &stream);
  return stream;
}

TEST(ArrowArrayStream, DeliversBatchesUntilTheEnd) {
  std::weak_ptr<int> watch;
  ArrowArrayStream stream = counting(2, std::nullopt, &watch);
  for (int i = 0; i < 2; ++i) {  // may be called again
    ArrowSchema schema;
    ASSERT_EQ(stream.get_schema(&stream, &schema), 0);
    EXPECT_STREQ(schema.name, "x");
    schema.release(&schema);
  }
  std::vector<ArrowArray> arrays(2);
  for (ArrowArray& array : arrays) {
    ASSERT_EQ(stream.get_next(&stream, &array), 0);
    ASSERT_NE(array.release, nullptr);
  }
  for (int i = 0; i < 2; ++i) {
    ArrowArray end;
    std::memset(&end, 0x55, sizeof end);
    EXPECT_EQ(stream.get_next(&stream, &end), 0);
    EXPECT_EQ(end.release, nullptr);
  }
  EXPECT_EQ(*watch.lock(), 3);  // it was not called again
  EXPECT_EQ(stream.get_last_error(&stream), nullptr);
  stream.release(&stream);
  EXPECT_EQ(stream.release, nullptr);
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(number_at(arrays[1], 0), 2);  // arrays outlive their stream
  for (ArrowArray& array : arrays) array.release(&array);
}

TEST(ArrowArrayStream, SaysWhatWentWrongAndSaysItAgain) {
  const std::pair<int, const char*> errors[] = {
      {EINVAL, "record 3 is damaged"}, {EIO, "the disk is gone"}, {ENOMEM, nullptr}};
  for (const auto& [errno_value, text] : errors) {
    std::weak_ptr<int> watch;
    ArrowArrayStream stream = counting(1, errno_value, &watch);
    ArrowArray array;
    ASSERT_EQ(stream.get_next(&stream, &array), 0);
    array.release(&array);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(stream.get_next(&stream, &array), errno_value);
      EXPECT_STREQ(stream.get_last_error(&stream), text);
    }
    EXPECT_EQ(*watch.lock(), 2);
    stream.release(&stream);
    EXPECT_TRUE(watch.expired());
  }
}

TEST(ArrowArrayStream, MayBeReleasedBeforeItsEnd) {
  std::weak_ptr<int> watch;
  ArrowArrayStream stream = counting(5, std::nullopt, &watch);
  ArrowArray array;
  ASSERT_EQ(stream.get_next(&stream, &array), 0);
  ArrowArrayStream moved = stream;
  stream.release = nullptr;
  std::thread([&moved] { moved.release(&moved); }).join();
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(number_at(array, 0), 1);
  array.release(&array);
}

}  // namespace
}  // namespace fastrec
