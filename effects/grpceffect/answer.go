package grpceffect

import (
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	"edda"
	"edda/effects"
	"edda/internal/jsonvalue"
)

// maxValues bounds the values of an answer: a megabyte of empty messages with many fields each
// would not fit the memory.
const maxValues = 1 << 18

// maxLooks bounds the fields that are visited, set or not: a server may describe messages of
// thousands of fields, and an empty one takes two bytes.
const maxLooks = 1 << 23

// decode makes the canonical value of an answer. newer says that the answer has fields that the
// description does not know.
func (m *method) decode(raw []byte) (v any, newer bool, err error) {
	defer survive(&err)
	w := writer{types: m.types}
	answer, err := w.parse(dynamicpb.NewMessageType(m.out), raw)
	if err != nil {
		return nil, false, err
	}
	if v, err = w.message(answer, 0); err != nil {
		return nil, false, err
	}
	v, err = jsonvalue.Canonical(v)
	return v, w.unknown, err
}

// detail makes the canonical value of a detail of a status.
func (m *method) detail(d *anypb.Any) (v any, err error) {
	defer survive(&err)
	w := writer{types: m.types}
	if v, err = w.any(d.ProtoReflect(), 0); err != nil {
		return nil, err
	}
	return jsonvalue.Canonical(v)
}

// survive turns a panic into an error. Descriptions and messages come from other machines, and the
// libraries treat types of some names in their own way.
func survive(err *error) {
	if p := recover(); p != nil {
		*err = edda.Classify(edda.Permanent, "the description cannot be used: %v", p)
	}
}

// writer converts messages to the JSON form of protobuf, with one exception: 64-bit integers are
// numbers, not texts. Unset fields with a default are included; unset messages and optional fields
// are not.
type writer struct {
	types   types
	values  int
	looks   int
	unknown bool // a message has fields that its type does not know
}

// parse reads a message. Required fields may be missing. It may nest as deep as a canonical value.
func (w *writer) parse(t protoreflect.MessageType, raw []byte) (protoreflect.Message, error) {
	m := t.New()
	err := proto.UnmarshalOptions{AllowPartial: true, Resolver: w.types, RecursionLimit: jsonvalue.MaxDepth}.Unmarshal(raw, m.Interface())
	if err != nil {
		return nil, errors.New("it is no valid " + string(m.Descriptor().FullName()))
	}
	return m, nil
}

func (w *writer) count() error {
	if w.values++; w.values > maxValues {
		return errors.New("it has more than 262144 values")
	}
	return nil
}

func (w *writer) message(m protoreflect.Message, depth int) (any, error) {
	if depth > jsonvalue.MaxDepth {
		return nil, errors.New("it is nested too deep")
	}
	w.unknown = w.unknown || len(m.GetUnknown()) > 0
	name := m.Descriptor().FullName()
	switch {
	case name == "google.protobuf.Any":
		return w.any(m, depth)
	case isWrapper(name):
		value := m.Descriptor().Fields().ByNumber(1)
		return w.scalar(value, m.Get(value))
	case isSpecial(name):
		return special(m)
	}
	return w.fields(m, depth)
}

// isWrapper reports whether a message stands for its one value.
func isWrapper(name protoreflect.FullName) bool {
	switch name {
	case "google.protobuf.BoolValue", "google.protobuf.StringValue", "google.protobuf.BytesValue", "google.protobuf.FloatValue", "google.protobuf.DoubleValue",
		"google.protobuf.Int32Value", "google.protobuf.Int64Value", "google.protobuf.UInt32Value", "google.protobuf.UInt64Value":
		return true
	}
	return false
}

// isSpecial reports whether a message has its own JSON form.
func isSpecial(name protoreflect.FullName) bool {
	switch name {
	case "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask",
		"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue":
		return true
	}
	return false
}

func special(m protoreflect.Message) (any, error) {
	text, err := protojson.Marshal(m.Interface())
	if err != nil {
		return nil, errors.New("it holds no valid " + string(m.Descriptor().FullName()))
	}
	return jsonvalue.Decode(text)
}

func (w *writer) fields(m protoreflect.Message, depth int) (map[string]any, error) {
	out := map[string]any{}
	fields := m.Descriptor().Fields()
	if w.looks += fields.Len(); w.looks > maxLooks {
		return nil, errors.New("its messages have more than 8388608 fields together")
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue
		}
		v, err := w.field(f, m.Get(f), depth+1)
		if err != nil {
			return nil, err
		}
		out[f.JSONName()] = v
	}
	return out, w.extensions(m, out, depth)
}

// extensions adds the extensions of a proto2 message, as "[name]".
func (w *writer) extensions(m protoreflect.Message, out map[string]any, depth int) (err error) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !f.IsExtension() {
			return true
		}
		var written any
		written, err = w.field(f, v, depth+1)
		out["["+string(f.FullName())+"]"] = written
		return err == nil
	})
	return err
}

func (w *writer) field(f protoreflect.FieldDescriptor, v protoreflect.Value, depth int) (any, error) {
	switch {
	case f.IsMap():
		return w.entries(f, v.Map(), depth)
	case f.IsList():
		return w.items(f, v.List(), depth)
	}
	return w.value(f, v, depth)
}

func (w *writer) entries(f protoreflect.FieldDescriptor, m protoreflect.Map, depth int) (any, error) {
	out := make(map[string]any, m.Len())
	var err error
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		var written any
		written, err = w.value(f.MapValue(), v, depth+1)
		out[strings.ToValidUTF8(k.String(), "\uFFFD")] = written
		return err == nil
	})
	return out, errors.Join(err, w.count())
}

func (w *writer) items(f protoreflect.FieldDescriptor, l protoreflect.List, depth int) (any, error) {
	out := make([]any, 0, min(l.Len(), maxValues))
	for i := range l.Len() {
		written, err := w.value(f, l.Get(i), depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, written)
	}
	return out, w.count()
}

func (w *writer) value(f protoreflect.FieldDescriptor, v protoreflect.Value, depth int) (any, error) {
	if err := w.count(); err != nil {
		return nil, err
	}
	if f.Message() != nil {
		return w.message(v.Message(), depth)
	}
	return w.scalar(f, v)
}

func (w *writer) scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) (any, error) {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return v.Bool(), nil
	case protoreflect.StringKind:
		return strings.ToValidUTF8(v.String(), "\uFFFD"), nil
	case protoreflect.BytesKind:
		return base64.StdEncoding.EncodeToString(v.Bytes()), nil
	case protoreflect.EnumKind:
		return enum(f.Enum(), v.Enum()), nil
	case protoreflect.FloatKind:
		return float(v.Float(), 32)
	case protoreflect.DoubleKind:
		return float(v.Float(), 64)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return unsigned(v.Uint()), nil
	default:
		return int(v.Int()), nil
	}
}

// unsigned returns a number, or a text above int64.
func unsigned(n uint64) any {
	if n > math.MaxInt64 {
		return strconv.FormatUint(n, 10)
	}
	return int(n)
}

// enum returns the name of a value, or its number if it has none.
func enum(d protoreflect.EnumDescriptor, n protoreflect.EnumNumber) any {
	if d.FullName() == "google.protobuf.NullValue" {
		return nil
	}
	if v := d.Values().ByNumber(n); v != nil {
		return string(v.Name())
	}
	return int(n)
}

// float returns the shortest number with these bits, or the name of NaN and infinities.
func float(f float64, bits int) (any, error) {
	switch {
	case math.IsNaN(f):
		return "NaN", nil
	case math.IsInf(f, 1):
		return "Infinity", nil
	case math.IsInf(f, -1):
		return "-Infinity", nil
	}
	shortest, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', -1, bits), 64)
	if err != nil {
		return nil, err
	}
	return jsonvalue.Canonical(shortest)
}

// any converts the content of an Any, with its type. If the type is unknown it returns the bytes.
func (w *writer) any(m protoreflect.Message, depth int) (any, error) {
	fields := m.Descriptor().Fields()
	url, raw := strings.ToValidUTF8(m.Get(fields.ByName("type_url")).String(), "\uFFFD"), m.Get(fields.ByName("value")).Bytes()
	t, err := w.types.FindMessageByURL(url)
	if err != nil {
		return map[string]any{"@type": url, "value": base64.StdEncoding.EncodeToString(raw)}, nil
	}
	held, err := w.parse(t, raw)
	if err != nil {
		return nil, err
	}
	v, err := w.message(held, depth+1)
	if err != nil {
		return nil, err
	}
	out, isMap := v.(map[string]any)
	if name := t.Descriptor().FullName(); !isMap || isSpecial(name) || name == "google.protobuf.Any" {
		return map[string]any{"@type": url, "value": v}, nil
	}
	out["@type"] = url
	return out, nil
}

// maxRetryAfter bounds the wait that a server may ask for. No step waits longer.
const maxRetryAfter = 7 * 24 * time.Hour

// class is what a status code says about another call and about the effect of this one; see
// effects.Response.
type class struct{ retry, refused, unknown, apart bool }

// classify follows gRPC's meaning of the codes. These may have had their effect: UNAVAILABLE,
// because a proxy also sends it for a server that ended in the middle of a call; UNKNOWN and
// INTERNAL, because a handler may crash after its work; CANCELLED and DATA_LOSS, because they do
// not say how far the call got. ABORTED means that nothing was done. A call that was not authorised
// says nothing about an earlier one, and ALREADY_EXISTS may be about what an earlier one created.
func classify(code codes.Code) class {
	switch code {
	case codes.ResourceExhausted:
		return class{retry: true, refused: true}
	case codes.Aborted:
		return class{retry: true}
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown:
		return class{retry: true, unknown: true}
	case codes.Canceled, codes.DataLoss:
		return class{unknown: true}
	case codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return class{apart: true}
	}
	if code > codes.Unauthenticated {
		return class{retry: true, unknown: true} // gRPC treats it as UNKNOWN
	}
	return class{}
}

// codeName returns the name in the protocol: NOT_FOUND.
func codeName(code codes.Code) string {
	if code == codes.Canceled {
		return "CANCELLED" // the library spells it differently
	}
	if code > codes.Unauthenticated {
		return "UNKNOWN"
	}
	var b strings.Builder
	for i, r := range code.String() {
		if i > 0 && r >= 'A' && r <= 'Z' && code != codes.OK {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// response makes the answer for expressions. newer says that the answer has fields that the
// description does not know.
func (m *method) response(data []byte, st *status.Status, md metadata.MD) (r effects.Response, newer bool, err error) {
	c := classify(st.Code())
	r = effects.Response{Status: int(st.Code()), Headers: incoming(md), Retry: c.retry, Refused: c.refused, Unknown: c.unknown, Apart: c.apart, After: retryAfter(st)}
	if st.Code() != codes.OK {
		r.Body = m.failure(st)
		return r, false, nil
	}
	r.Body, newer, err = m.decode(data)
	return r, newer, err
}

// failure makes the body of a status that is not OK.
func (m *method) failure(st *status.Status) map[string]any {
	details := []any{}
	for _, d := range st.Proto().GetDetails() {
		v, err := m.detail(d)
		if err != nil {
			v = map[string]any{"@type": strings.ToValidUTF8(d.GetTypeUrl(), "\uFFFD")} // the detail is lost, not the status
		}
		details = append(details, v)
	}
	return map[string]any{"code": codeName(st.Code()), "message": strings.ToValidUTF8(st.Message(), "\uFFFD"), "details": details}
}

// retryAfter returns the longest wait in the RetryInfo details, 0 if there is none.
func retryAfter(st *status.Status) (after time.Duration) {
	for _, d := range st.Proto().GetDetails() {
		var info errdetails.RetryInfo
		if d.MessageIs(&info) && d.UnmarshalTo(&info) == nil {
			after = max(after, info.GetRetryDelay().AsDuration())
		}
	}
	return min(after, maxRetryAfter)
}
