// Claims steps as a pipeline does.
#pragma once

#include <vector>

#include "loader/claims.h"

namespace fastrec::testing {

// Claims the next step. False at the end.
inline bool claim_step(Claims* claims, Claim* claim) {
  Claims::Outcome outcome;
  do {
    claims->prepare();
    outcome = claims->next(claim);
  } while (outcome == Claims::Outcome::kNone);
  return outcome == Claims::Outcome::kStep;
}

inline std::vector<Place> places_of(const FrameRuns& frames) {
  std::vector<Place> places;
  PlaceCursor cursor(&frames);
  for (std::size_t i = 0; i < frames.size(); ++i) places.push_back(cursor.at(i));
  return places;
}

}  // namespace fastrec::testing
