// Foreign: a record that is not a tf.train.Example or SequenceExample -> what it is.
//
// Many messages are valid Examples to a protobuf parser, which ignores unknown fields. A
// record is an Example if some feature has a kind of values, or if it has nothing but
// maps with printable names.
#pragma once

#include <string>

#include "base/bytes.h"

namespace fastrec {

// What `record` looks like: "UTF-8 text", "a JPEG file", "a serialized protobuf message
// with fields 1, 2". "" if it is an Example or a SequenceExample.
std::string describe_foreign(Bytes record);

}  // namespace fastrec
