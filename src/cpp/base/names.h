// Names: values of an enum <-> their names in Python.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace fastrec {

// Specialized next to an enum. `kAll` holds the names in the order of the values; it
// may end before the last values, which then have no name.
template <typename Enum>
struct Names;

template <typename Enum>
concept Named = requires { Names<Enum>::kAll; };

template <typename Enum>
constexpr const char* name_of(Enum value) noexcept {
  return Names<Enum>::kAll[static_cast<std::size_t>(value)];
}

template <typename Enum>
constexpr std::optional<Enum> named(std::string_view name) noexcept {
  std::size_t i = 0;
  for (const char* const known : Names<Enum>::kAll) {
    if (name == known) return static_cast<Enum>(i);
    ++i;
  }
  return std::nullopt;
}

}  // namespace fastrec
