package grpceffect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	rpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"edda"
	"edda/effects"
)

// clock is a time that tests move.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

func (p *Provider) with(c *clock) *Provider {
	p.schemas.now = c.now
	return p
}

// asks counts the questions to a bank's reflection.
func asks(n *atomic.Int64) grpc.ServerOption {
	return grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if strings.HasPrefix(info.FullMethod, "/grpc.reflection.") {
			n.Add(1)
		}
		return handle(srv, stream)
	})
}

// newer is the bank's language after a release: a field more on both sides.
var newer = strings.NewReplacer("optional string note = 3;", "optional string note = 3; string colour = 9;", "bool declined = 3;", "bool declined = 3; string fee = 9;").Replace(shopProto)

func TestReflectionIsAskedOnce(t *testing.T) {
	var n atomic.Int64
	b := openBank(t, describedV1, asks(&n))
	p := local(t)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if _, err := b.call(p, "k"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n.Load() != 1 {
		t.Errorf("asked %d times for 32 calls", n.Load())
	}
}

// TestMessageOfANewRelease is sent once the server knows it, and messages that
// never fit do not ask at every call.
func TestMessageOfANewRelease(t *testing.T) {
	var n atomic.Int64
	b, c := openBank(t, describedV1, asks(&n)), &clock{}
	p := local(t).with(c)
	coloured := map[string]any{"message": map[string]any{"colour": "red"}}
	if _, err := b.call(p, "k"); err != nil {
		t.Fatal(err)
	}
	b.describe(newer)
	for range 3 {
		if _, err := b.call(p, "k", coloured); !errors.Is(err, effects.ErrNotSent) || n.Load() != 1 {
			t.Fatalf("asked %d times within %s: %v", n.Load(), askAgain, err)
		}
	}
	c.advance(askAgain)
	if _, err := b.call(p, "k", coloured); err != nil || n.Load() != 2 {
		t.Errorf("asked %d times: %v", n.Load(), err)
	}
	c.advance(askAgain)
	for range 3 {
		if _, err := b.call(p, "k", map[string]any{"message": map[string]any{"nonsense": 1}}); !errors.Is(err, edda.Permanent) {
			t.Error(err)
		}
	}
	if n.Load() != 3 {
		t.Errorf("asked %d times", n.Load())
	}
}

func TestAnswerOfANewRelease(t *testing.T) {
	var n atomic.Int64
	b, c := openBank(t, describedV1, asks(&n)), &clock{}
	p := local(t).with(c)
	b.says(protowire.AppendBytes(protowire.AppendTag(nil, 9, protowire.BytesType), []byte("7")))
	for _, want := range []string{"<nil>", "<nil>", `"7"`} {
		r, err := b.call(p, "k")
		if err != nil || show(r.Body.(map[string]any)["fee"]) != want {
			t.Errorf("answer %v %v, want fee %s", r.Body, err, want)
		}
		b.describe(newer)
		if want == "<nil>" && n.Load() != 1 {
			t.Errorf("asked %d times", n.Load())
		}
		if r.Body.(map[string]any)["id"] == nil {
			t.Error("what is known of the answer is lost")
		}
		c.advance(askAgain / 2)
	}
}

func TestUnimplementedIsADoubt(t *testing.T) {
	var n atomic.Int64
	b, c := openBank(t, describedV1, asks(&n)), &clock{}
	p := local(t).with(c)
	if _, err := b.call(p, "k"); err != nil {
		t.Fatal(err)
	}
	b.fails(status.Error(codes.Unimplemented, "moved"))
	r, err := b.call(p, "k")
	if err != nil || r.Status != 12 || r.Retry || r.Unknown {
		t.Errorf("answer %+v %v", r, err)
	}
	b.describe(strings.Replace(shopProto, "rpc Charge(", "rpc Pay(", 1))
	c.advance(askAgain)
	if r, err := b.call(p, "k"); err != nil || r.Status != 12 || n.Load() != 2 {
		t.Errorf("a description without the method took away what was known: %+v %v, asked %d times", r, err, n.Load())
	}
}

func TestMethodsThatCannotBeCalled(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	for method, want := range map[string]string{
		"shop.v1.Payments/Refund":       "service shop.v1.Payments has no method Refund",
		"shop.v1.Nobody/Charge":         "shop.v1.Nobody",
		"shop.v1.ChargeRequest/Charge":  "there is no service shop.v1.ChargeRequest",
		"shop.v1.Payments/Watch":        "streams",
		"/shop.v1.Payments/Charge":      "package.Service/Method",
		"shop.v1.Payments/Charge/again": "package.Service/Method",
		"Charge":                        "package.Service/Method",
		"":                              "package.Service/Method",
	} {
		_, err := b.call(p, "k", map[string]any{"method": method})
		if !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", method, err, want)
		}
	}
	if b.method != "" {
		t.Error("something was sent")
	}
}

func TestServerWithoutReflection(t *testing.T) {
	b, p := openBank(t, undescribed), local(t)
	_, err := b.call(p, "k")
	if !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) || !strings.Contains(err.Error(), "give proto or descriptor_set") {
		t.Errorf("error %v", err)
	}
}

func TestReflectionThatIsRefused(t *testing.T) {
	for code, permanent := range map[codes.Code]bool{codes.PermissionDenied: true, codes.Unauthenticated: true, codes.Unavailable: false, codes.ResourceExhausted: false, codes.Unknown: false} {
		b := openBank(t, describedV1, grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return status.Error(code, "no")
		}))
		_, err := b.call(local(t), "k")
		if !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) != permanent {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestReflectionSeesTheMetadata: a server that wants a token wants it there too.
func TestReflectionSeesTheMetadata(t *testing.T) {
	b := openBank(t, describedV1, grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		if strings.Join(md["authorization"], "") != "Bearer s" {
			return status.Error(codes.Unauthenticated, "who are you")
		}
		return handle(srv, s)
	}))
	p := local(t)
	if _, err := b.call(p, "k"); !errors.Is(err, edda.Permanent) {
		t.Errorf("without a token: %v", err)
	}
	if _, err := b.call(p, "k", map[string]any{"metadata": map[string]any{"authorization": "Bearer s"}}); err != nil {
		t.Error(err)
	}
}

// liar answers each question with what a test says.
type liar struct {
	rpb.UnimplementedServerReflectionServer
	answer func(n int, question *rpb.ServerReflectionRequest) []*descriptorpb.FileDescriptorProto
}

func (l liar) ServerReflectionInfo(stream grpc.BidiStreamingServer[rpb.ServerReflectionRequest, rpb.ServerReflectionResponse]) error {
	for n := 0; ; n++ {
		question, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		files := &rpb.FileDescriptorResponse{}
		for _, f := range l.answer(n, question) {
			raw, err := proto.Marshal(f)
			if err != nil {
				return err
			}
			files.FileDescriptorProto = append(files.FileDescriptorProto, raw)
		}
		answer := &rpb.ServerReflectionResponse{MessageResponse: &rpb.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: files}}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// file describes a service shop.v1.Payments whose message has the name given.
func file(message, pkg string, imports ...string) *descriptorpb.FileDescriptorProto {
	full := "." + pkg + "." + message
	return &descriptorpb.FileDescriptorProto{
		Name: proto.String("a.proto"), Package: proto.String(pkg), Syntax: proto.String("proto3"), Dependency: imports,
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String(message)}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Payments"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Charge"), InputType: &full, OutputType: &full},
		}}},
	}
}

func TestReflectionThatLies(t *testing.T) {
	t.Parallel() // it waits
	type files = []*descriptorpb.FileDescriptorProto
	for name, answer := range map[string]func(int, *rpb.ServerReflectionRequest) files{
		"nothing":               func(int, *rpb.ServerReflectionRequest) files { return nil },
		"another file":          func(int, *rpb.ServerReflectionRequest) files { return files{{Name: proto.String("b.proto")}} },
		"a file without a name": func(int, *rpb.ServerReflectionRequest) files { return files{{}} },
		"imports without an end": func(n int, _ *rpb.ServerReflectionRequest) files {
			f := file("M", "shop.v1", fmt.Sprintf("%d.proto", n+1))
			if n > 0 {
				f.Name = proto.String(fmt.Sprintf("%d.proto", n))
			}
			return files{f}
		},
		"imports in a circle": func(n int, _ *rpb.ServerReflectionRequest) files {
			return files{file("M", "shop.v1", "b.proto"), {Name: proto.String("b.proto"), Dependency: []string{"a.proto"}}}
		},
		"an import that never comes": func(int, *rpb.ServerReflectionRequest) files { return files{file("M", "shop.v1", "b.proto")} },
		"a type that is nowhere": func(int, *rpb.ServerReflectionRequest) files {
			f := file("M", "shop.v1")
			f.Service[0].Method[0].InputType = proto.String(".shop.v1.N")
			return files{f}
		},
		"names that unfold": func(int, *rpb.ServerReflectionRequest) files {
			f := file(strings.Repeat("M", 1<<16), "shop.v1")
			f.MessageType[0].NestedType = make([]*descriptorpb.DescriptorProto, 1<<12)
			for i := range f.MessageType[0].NestedType {
				f.MessageType[0].NestedType[i] = &descriptorpb.DescriptorProto{Name: proto.String(fmt.Sprint("N", i))}
			}
			return files{f}
		},
		"types that nest without an end": func(int, *rpb.ServerReflectionRequest) files {
			f := file("M", "shop.v1")
			inner := f.MessageType[0]
			for range 200 {
				inner.NestedType = []*descriptorpb.DescriptorProto{{Name: proto.String("M")}}
				inner = inner.NestedType[0]
			}
			return files{f}
		},
		"far too much": func(n int, _ *rpb.ServerReflectionRequest) files {
			return files{{Name: proto.String(fmt.Sprint(n)), Dependency: []string{fmt.Sprint(n + 1)}, Package: proto.String(strings.Repeat("x", 15<<20))}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lied(t, answer, "shop.v1")
			if !errors.Is(err, effects.ErrNotSent) || !errors.Is(err, edda.Permanent) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// lied calls a server with such a reflection, which answers with a field of bytes.
func lied(t *testing.T, answer func(int, *rpb.ServerReflectionRequest) []*descriptorpb.FileDescriptorProto, pkg string) (effects.Response, error) {
	b := openBank(t, undescribed)
	b.stop()
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(&descriptorpb.FileDescriptorProto{Name: proto.String("x")})
	}))
	rpb.RegisterServerReflectionServer(s, liar{answer: answer})
	b.serve(s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return local(t).Call(ctx, effects.Call{Config: b.config(map[string]any{"method": pkg + ".Payments/Charge", "message": nil})})
}

// TestTypesThatAreNotWhatTheyAreCalled: the libraries treat some names in their
// own way and expect the fields that belong to them.
func TestTypesThatAreNotWhatTheyAreCalled(t *testing.T) {
	for _, name := range []string{"Any", "Timestamp", "Struct", "Value", "Int64Value", "Duration", "FieldMask", "ListValue", "BytesValue", "Empty"} {
		r, err := lied(t, func(int, *rpb.ServerReflectionRequest) []*descriptorpb.FileDescriptorProto {
			return []*descriptorpb.FileDescriptorProto{file(name, "google.protobuf")}
		}, "google.protobuf")
		if err != nil && !errors.Is(err, edda.Permanent) {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
}

func TestSchemasAreBounded(t *testing.T) {
	s := newSchemas()
	first := s.entry("first")
	for i := range maxSchemas {
		s.entry("first")
		s.entry(fmt.Sprint(i))
	}
	if len(s.entries) != maxSchemas || s.entry("first") != first {
		t.Errorf("%d methods are remembered", len(s.entries))
	}
}
