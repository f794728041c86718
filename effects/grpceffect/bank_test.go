package grpceffect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	mirror "google.golang.org/grpc/reflection"
	rpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"edda/effects"
	"edda/effects/dial"
)

// shopProto is what the bank of the tests speaks.
const shopProto = `syntax = "proto3";
package shop.v1;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
service Payments {
  rpc Charge(ChargeRequest) returns (Receipt);
  rpc Find(FindRequest) returns (Receipt);
  rpc Echo(Everything) returns (Everything);
  rpc Watch(ChargeRequest) returns (stream Receipt);
}
message ChargeRequest {
  string order = 1;
  int64 amount_cents = 2;
  optional string note = 3;
  repeated Item items = 4;
  map<string, Item> by_name = 5;
}
message FindRequest { string key = 1; }
message Item { string sku = 1; int32 count = 2; }
message Receipt { string id = 1; int64 amount_cents = 2; bool declined = 3; }
message Everything {
  enum Colour { NONE = 0; RED = 1; }
  int32 small = 1; int64 big = 2; uint64 huge = 3; sint64 zig = 4; fixed64 fixed = 5;
  float thin = 6; double wide = 7; bool yes = 8; string text = 9; bytes raw = 10; Colour colour = 11;
  repeated int64 many = 12; map<string, uint64> counts = 13; map<int64, Everything> deep = 14; Everything child = 15;
  google.protobuf.Timestamp at = 16; google.protobuf.Duration took = 17; google.protobuf.Struct loose = 18;
  google.protobuf.Int64Value wrapped = 19; google.protobuf.Any packed = 20; optional int64 maybe = 21;
  oneof choice { int64 left = 22; string right = 23; }
}
`

// writeProto writes a .proto file below a folder.
func writeProto(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func compileProto(t testing.TB, text string) *protoregistry.Files {
	t.Helper()
	files, _, err := protoFile{path: writeProto(t, filepath.Join(t.TempDir(), "shop.proto"), text)}.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// descriptorSetOf is what protoc would write of the files.
func descriptorSetOf(files *protoregistry.Files, names ...string) *descriptorpb.FileDescriptorSet {
	set := &descriptorpb.FileDescriptorSet{}
	files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if len(names) == 0 || slices.Contains(names, f.Path()) {
			set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
		}
		return true
	})
	return set
}

// bank is a real server whose methods are described at run time.
type bank struct {
	t     testing.TB
	addr  string
	files *protoregistry.Files

	mu     sync.Mutex // guards below
	server *grpc.Server
	served chan error
	seen   map[string]int
	md     metadata.MD
	asked  *dynamicpb.Message
	method string
	// answer, where set, answers instead; a text is protojson of the method's output.
	answer func(ctx context.Context, in *dynamicpb.Message) (any, error)
}

// The ways a bank may describe itself.
const (
	describedV1    = "v1"
	describedAlpha = "v1alpha"
	undescribed    = ""
)

func openBank(t testing.TB, description string, options ...grpc.ServerOption) *bank {
	t.Helper()
	b := &bank{t: t, addr: "127.0.0.1:0", files: compileProto(t, shopProto), seen: map[string]int{}}
	b.start(description, options...)
	t.Cleanup(b.stop)
	return b
}

func (b *bank) start(description string, options ...grpc.ServerOption) {
	s := grpc.NewServer(append(options, grpc.UnknownServiceHandler(b.handle))...)
	o := mirror.ServerOptions{Services: b, DescriptorResolver: b}
	switch description {
	case describedV1:
		rpb.RegisterServerReflectionServer(s, mirror.NewServerV1(o))
	case describedAlpha:
		alphapb.RegisterServerReflectionServer(s, mirror.NewServer(o))
	}
	b.serve(s)
}

// serve opens the bank at the address it had, if any.
func (b *bank) serve(s *grpc.Server) {
	l, err := net.Listen("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	b.addr, b.server, b.served = l.Addr().String(), s, served
}

func (b *bank) stop() {
	if b.server == nil {
		return
	}
	b.server.Stop()
	if err := <-b.served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		b.t.Error(err)
	}
	b.server = nil
}

// describe changes what the bank speaks.
func (b *bank) describe(text string) {
	files := compileProto(b.t, text)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files = files
}

func (b *bank) known() *protoregistry.Files {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files
}

// A bank is what its reflection reads.
func (b *bank) GetServiceInfo() map[string]grpc.ServiceInfo {
	return map[string]grpc.ServiceInfo{"shop.v1.Payments": {}}
}
func (b *bank) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	return b.known().FindFileByPath(path)
}
func (b *bank) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return b.known().FindDescriptorByName(name)
}

func (b *bank) handle(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	service, name, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	d, err := b.known().FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return status.Errorf(codes.Unimplemented, "unknown service %s", service)
	}
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
	if m == nil {
		return status.Errorf(codes.Unimplemented, "unknown method %s", name)
	}
	in := dynamicpb.NewMessage(m.Input())
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	answer := b.note(stream.Context(), full, in)
	out, err := answer(stream.Context(), in)
	if err != nil {
		return err
	}
	return stream.SendMsg(b.message(m, out))
}

func (b *bank) note(ctx context.Context, full string, in *dynamicpb.Message) func(context.Context, *dynamicpb.Message) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.md, _ = metadata.FromIncomingContext(ctx)
	b.asked, b.method = in, full
	for _, key := range b.md["idempotency-key"] {
		b.seen[key]++
	}
	if b.answer != nil {
		return b.answer
	}
	return usual
}

// usual hangs for the order "hang", gives back everything of Echo, and pays.
func usual(ctx context.Context, in *dynamicpb.Message) (any, error) {
	if in.Descriptor().Name() == "Everything" {
		return in, nil
	}
	if in.Get(in.Descriptor().Fields().ByName("order")).String() == "hang" {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return `{"id":"P1","amountCents":"9007199254740993"}`, nil
}

func (b *bank) message(m protoreflect.MethodDescriptor, v any) proto.Message {
	out := dynamicpb.NewMessage(m.Output())
	switch v := v.(type) {
	case proto.Message:
		return v
	case []byte:
		out.SetUnknown(v)
	case string:
		if err := protojson.Unmarshal([]byte(v), out); err != nil {
			b.t.Error(err)
		}
	}
	return out
}

func (b *bank) count(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[key]
}

func (b *bank) calls() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.seen {
		n += c
	}
	return n
}

func (b *bank) answers(f func(ctx context.Context, in *dynamicpb.Message) (any, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

// says answers with a fixed message.
func (b *bank) says(v any) {
	b.answers(func(context.Context, *dynamicpb.Message) (any, error) { return v, nil })
}

// fails answers with a status.
func (b *bank) fails(err error) {
	b.answers(func(context.Context, *dynamicpb.Message) (any, error) { return nil, err })
}

// config calls the bank; extra adds to it, or takes away what is nil.
func (b *bank) config(extra ...map[string]any) map[string]any {
	out := map[string]any{"target": b.addr, "method": "shop.v1.Payments/Charge", "plaintext": true, "message": map[string]any{"order": "o1", "amountCents": 9007199254740993}}
	for _, e := range extra {
		maps.Copy(out, e)
	}
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	return out
}

func provider(t testing.TB, o dial.Options) *Provider {
	t.Helper()
	return New(Options{Guard: guard(t, o)}).closedBy(t)
}

func (p *Provider) closedBy(t testing.TB) *Provider {
	t.Cleanup(p.Close)
	return p
}

func guard(t testing.TB, o dial.Options) *dial.Guard {
	t.Helper()
	g, err := dial.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// local is a provider that may call this machine.
func local(t testing.TB) *Provider { return provider(t, dial.Options{AllowLoopback: true}) }

func (b *bank) call(p *Provider, key string, extra ...map[string]any) (effects.Response, error) {
	return p.Call(b.t.Context(), effects.Call{Effect: "charge", ID: "id-" + key, Key: key, Tenant: "acme", Config: b.config(extra...)})
}

// silence makes a call that no answer reaches before its deadline. A call whose deadline was over before it was sent,
// because the machine was busy, is made again with twice the time.
func (b *bank) silence(p *Provider, within time.Duration, key string, extra ...map[string]any) error {
	for ; ; within *= 2 {
		ctx, cancel := context.WithTimeout(b.t.Context(), within)
		_, err := p.Call(ctx, effects.Call{Key: key, Config: b.config(extra...)})
		late := ctx.Err() != nil
		if cancel(); !late || !errors.Is(err, effects.ErrNotSent) || b.count(key) > 0 || within > 10*time.Second {
			return err
		}
	}
}

// nobody is an address where nobody listens.
func nobody(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// show is a value for comparisons: its type matters.
func show(v any) string { return fmt.Sprintf("%#v", v) }
