// Frame runs as lists of places.
#pragma once

#include <span>
#include <vector>

#include "record/frame_runs.h"

namespace fastrec::testing {

inline std::vector<Place> places_of(const FrameRuns& frames) {
  std::vector<Place> places;
  PlaceCursor cursor(&frames);
  for (std::size_t i = 0; i < frames.size(); ++i) places.push_back(cursor.at(i));
  return places;
}

inline FrameRuns frames_of(std::span<const Place> places) {
  FrameRuns frames;
  for (const Place& place : places) frames.add(place);
  return frames;
}

}  // namespace fastrec::testing
