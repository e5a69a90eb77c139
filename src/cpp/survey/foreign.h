// Foreign: a record that is not a tf.train.Example or SequenceExample -> what it is.
//
// Many messages are valid Examples to a protobuf parser, which ignores unknown fields. A
// record is an Example if some feature has a kind of values or is empty, or if it has
// nothing but maps with printable names. An entry without a value is a missing feature,
// but if no entry has a value, the maps are other messages: in an ExampleListWithContext,
// each Example would be an entry.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/error.h"

namespace fastrec {

// What `record` looks like: "UTF-8 text", "a JPEG file", "a serialized protobuf message
// with fields 1, 2". "" if it is an Example or a SequenceExample.
std::string describe_foreign(Bytes record);

// Returns kNotExample if `record`, in which a decoder found no requested feature, is
// provably another message. An Example without features may have unknown fields.
Fault check_example(Bytes record);

}  // namespace fastrec
