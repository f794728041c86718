package grpceffect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"edda/effects"
	"edda/expression"
	"edda/internal/jsonvalue"
)

// request is the checked map of the manifest.
type request struct {
	target    string
	method    string // "shop.v1.Payments/Charge"
	message   any
	given     metadata.MD // metadata of the manifest
	key       string
	trace     string
	plaintext bool
	tls       any
	files     descriptors // nil asks the server's reflection
}

func read(c effects.Call) (request, error) {
	r := request{
		target: expression.Text(c.Config["target"]), method: expression.Text(c.Config["method"]),
		message: c.Config["message"], tls: c.Config["tls"], key: c.Key,
	}
	if traceparent.MatchString(c.Trace) {
		r.trace = c.Trace
	}
	var err error
	r.given, err = outgoing(c.Config["metadata"])
	if err == nil {
		r.files, err = files(c)
	}
	if err != nil {
		return request{}, err
	}
	r.plaintext, _ = c.Config["plaintext"].(bool)
	return r, r.check()
}

func (r request) check() error {
	_, isMap := r.message.(map[string]any)
	switch {
	case !isMap && r.message != nil:
		return errors.New("message is no map")
	case !isTarget(r.target):
		return errors.New("target is no host:port")
	case !methodForm.MatchString(r.method):
		return errors.New("method is not of the form package.Service/Method")
	case !printable(r.key):
		return errors.New("the idempotency key holds characters that metadata cannot")
	}
	return nil
}

// traceparent is the form of the W3C header. Other traces are not sent.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// methodForm is package.Service/Method.
var methodForm = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*/[A-Za-z_]\w*$`)

// hostForm is a host name or an IPv4 address.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)

// isTarget accepts host:port only. Other forms choose a scheme of grpc, which would resolve names
// without the guard.
func isTarget(target string) bool {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return false
	}
	return hostForm.MatchString(host) || strings.Contains(host, ":") && net.ParseIP(host) != nil
}

// metadata returns the metadata of the call: the manifest's, and Edda's where the manifest has
// none.
func (r request) metadata() metadata.MD {
	md := r.given.Copy()
	for name, v := range map[string]string{"idempotency-key": r.key, "traceparent": r.trace} {
		if len(md[name]) == 0 && v != "" {
			md.Set(name, v)
		}
	}
	return md
}

// traced makes the command's trace the parent of the call's span, unless this process has a span.
func (r request) traced(ctx context.Context) context.Context {
	if r.trace == "" || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": r.trace})
}

// source returns the description of the method.
func (r request) source(c *conn) descriptors {
	if r.files != nil {
		return r.files
	}
	return reflection{conn: c, metadata: r.given, method: r.method}
}

// files returns the source that the manifest names, or nil.
func files(c effects.Call) (descriptors, error) {
	proto, set := expression.Text(c.Config["proto"]), expression.Text(c.Config["descriptor_set"])
	imports, isList := c.Config["import_paths"].([]any)
	switch {
	case !isList && c.Config["import_paths"] != nil:
		return nil, errors.New("import_paths is no list")
	case proto != "" && set != "":
		return nil, errors.New("proto and descriptor_set exclude each other")
	case set != "":
		return descriptorSet{path: within(c.Folder, set)}, nil
	case proto == "":
		return nil, nil
	}
	f := protoFile{path: within(c.Folder, proto)}
	for _, path := range imports {
		f.imports = append(f.imports, within(c.Folder, expression.Text(path)))
	}
	return f, nil
}

// within resolves a path relative to the manifest's folder.
func within(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// encode makes the message of a value in the JSON form of protobuf. Unknown and missing required
// fields are errors.
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

// misfits are the parts of protojson's errors that name fields and types. Values are left out,
// because they may be secrets.
var misfits = regexp.MustCompile(`unknown field "(?:[^"\\]|\\.)*"|duplicate field "(?:[^"\\]|\\.)*"|invalid value for \w+ (?:field \w+|key)|oneof [\w.]+ is already set|required field [\w.]+ not set|(?:invalid )?google\.protobuf\.\w+ value|exceeded max recursion depth`)

func misfit(err error) string {
	if known := misfits.FindString(err.Error()); known != "" {
		return known
	}
	return "a value has another form than its field"
}
