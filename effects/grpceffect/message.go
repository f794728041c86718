package grpceffect

import (
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"edda/internal/jsonvalue"
)

// encode makes the message of a value in the JSON form of protobuf. What the
// method does not know is an error, and so is what it wants and there is not.
func (m *method) encode(message any) (raw []byte, err error) {
	defer survive(&err)
	if message == nil {
		message = map[string]any{}
	}
	text, err := jsonvalue.Encode(message)
	if err != nil {
		return nil, err
	}
	out := dynamicpb.NewMessage(m.in)
	if err := (protojson.UnmarshalOptions{Resolver: m.types}).Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("message is no %s: %s", m.in.FullName(), misfit(err))
	}
	raw, err = (proto.MarshalOptions{Deterministic: true}).Marshal(out)
	if err == nil && len(raw) > maxMessage {
		err = errors.New("message is larger than 4 MiB")
	}
	return raw, err
}

// misfits are the parts of protojson's errors that name fields and types, and no
// values: those may be secrets.
var misfits = regexp.MustCompile(`unknown field "(?:[^"\\]|\\.)*"|duplicate field "(?:[^"\\]|\\.)*"|invalid value for \w+ (?:field \w+|key)|oneof [\w.]+ is already set|required field [\w.]+ not set|(?:invalid )?google\.protobuf\.\w+ value|exceeded max recursion depth`)

func misfit(err error) string {
	if known := misfits.FindString(err.Error()); known != "" {
		return known
	}
	return "a value has another form than its field"
}
