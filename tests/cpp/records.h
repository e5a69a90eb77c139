// Records: handmade frames and temporary files for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/process.h"
#include "crc32c/crc32c.h"

namespace fastrec::testing {

template <typename UInt>
void append_le(std::string* out, UInt value) {
  std::uint8_t bytes[sizeof value];
  store_le(bytes, value);
  out->append(reinterpret_cast<const char*>(bytes), sizeof bytes);
}

// A header with a valid checksum for any length.
inline std::string header_of(std::uint64_t length) {
  std::string header;
  append_le(&header, length);
  append_le(&header, crc32c_mask(crc32c(as_bytes(header))));
  return header;
}

inline std::string frame_of(std::string_view payload) {
  std::string frame = header_of(payload.size());
  frame += payload;
  append_le(&frame, crc32c_mask(crc32c(as_bytes(payload))));
  return frame;
}

inline std::string file_of(const std::vector<std::string>& payloads) {
  std::string file;
  for (const std::string& payload : payloads) file += frame_of(payload);
  return file;
}

// A temporary directory with a unique name, because tests run in parallel.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    path_ = std::filesystem::temp_directory_path() /
            ("fastrec_" + std::to_string(process_id()) + "_" +
             std::to_string(reinterpret_cast<std::uintptr_t>(this)));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }

  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(file(name), std::ios::binary) << content;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

// Handwritten messages: varints and length-delimited fields.
inline void append_varint(std::string* out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) *out += static_cast<char>(value | 0x80);
  *out += static_cast<char>(value);
}

inline std::string varint_of(std::uint64_t value) {
  std::string bytes;
  append_varint(&bytes, value);
  return bytes;
}

inline void append_field(std::string* out, unsigned number, std::string_view content) {
  append_varint(out, number << 3 | 2);
  append_varint(out, content.size());
  out->append(content);
}

inline std::string field_of(unsigned number, std::string_view content) {
  std::string field;
  field.reserve(content.size() + 8);
  append_field(&field, number, content);
  return field;
}

inline std::string int64_feature(const std::vector<std::int64_t>& values) {
  std::string packed;
  for (const std::int64_t value : values) {
    packed += varint_of(static_cast<std::uint64_t>(value));
  }
  return field_of(3, field_of(1, packed));
}

inline std::string bytes_feature(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += field_of(1, value);
  return field_of(1, list);
}

inline std::string entry_of(std::string_view key, std::string_view feature) {
  std::string entry;
  entry.reserve(key.size() + feature.size() + 16);
  append_field(&entry, 1, key);
  append_field(&entry, 2, feature);
  return field_of(1, entry);
}

inline std::string example_of(std::string_view entries) { return field_of(1, entries); }

}  // namespace fastrec::testing
