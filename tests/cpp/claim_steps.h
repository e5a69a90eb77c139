// Claims steps as a pipeline does.
#pragma once

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

}  // namespace fastrec::testing
