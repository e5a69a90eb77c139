// Paths: the paths of many files -> the version and the content of each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "file/file.h"
#include "record/framing.h"

namespace fastrec {

// Splits paths that are joined by NUL bytes.
std::vector<std::string> split_paths(std::string_view joined);

// The content of a file by its first bytes. Its length is not compared with the size of
// the file. Throws IoError.
Content recognize_file(const std::string& path);

// The following use several threads, because a file server may be slow to answer. They
// throw the first IoError in the order of the files.

// The version of each file.
std::vector<FileIdentity> versions_of(const std::vector<std::string>& paths,
                                      std::size_t n_threads);

// 1 for each file that may be compressed, by its first bytes; else 0.
std::vector<std::uint8_t> may_be_compressed(const std::vector<std::string>& paths,
                                            std::size_t n_threads);

}  // namespace fastrec
