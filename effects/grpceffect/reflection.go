package grpceffect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	rpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"edda"
)

// The bounds of a description.
const (
	// maxFiles and maxDescription bound a description; the latter counts bytes with full names.
	// The largest public APIs have a fraction of it.
	maxFiles       = 1000
	maxDescription = 64 << 20
	// maxFile bounds one file, or one descriptor set.
	maxFile = 16 << 20
	// maxNesting bounds the nesting of types.
	maxNesting = 64
)

// reflection asks the server. It sends the call's metadata, because a server that requires a token
// for the call may require it here.
type reflection struct {
	conn     *conn
	metadata metadata.MD
	method   string
}

func (reflection) name() string         { return "reflection" }
func (r reflection) key() string        { return r.conn.key }
func (reflection) every() time.Duration { return askAgain }

// versions lists the names of the protocol, the newest first.
func versions() []string { return []string{"grpc.reflection.v1", "grpc.reflection.v1alpha"} }

func (r reflection) load(ctx context.Context) (*protoregistry.Files, []stamp, error) {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, r.metadata.Copy()))
	defer cancel()
	err := error(nil)
	for _, version := range versions() {
		var found *description
		if found, err = r.ask(ctx, version); err == nil {
			files, err := found.assemble(r.name())
			return files, nil, err
		}
		if status.Code(err) != codes.Unimplemented {
			break
		}
	}
	return nil, nil, r.judge(err)
}

// judge classifies an error of reflection.
func (r reflection) judge(err error) error {
	switch status.Code(err) {
	case codes.Unimplemented:
		return edda.Classify(edda.Permanent, "reflection: the server has none: give proto or descriptor_set")
	case codes.NotFound:
		return edda.Classify(edda.Permanent, "reflection: the server does not describe %s: %s", r.method, text(err))
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated:
		return edda.Classify(edda.Permanent, "reflection: %s", text(err))
	case codes.Unavailable:
		return edda.Classify(edda.Temporary, "reflection: %w", r.conn.why(err))
	default:
		return edda.Classify(edda.Temporary, "reflection: %s", text(err))
	}
}

// ask gets the file of the service and all its imports.
func (r reflection) ask(ctx context.Context, version string) (*description, error) {
	service, _, _ := strings.Cut(r.method, "/")
	stream, err := r.conn.cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/"+version+".ServerReflection/ServerReflectionInfo", grpc.MaxCallRecvMsgSize(maxFile))
	if err != nil {
		return nil, err
	}
	d := newDescription()
	question := &rpb.ServerReflectionRequest{MessageRequest: &rpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}}
	err = exchange(stream, question, d)
	for name := d.missing(); err == nil && name != ""; name = d.missing() {
		question.MessageRequest = &rpb.ServerReflectionRequest_FileByFilename{FileByFilename: name}
		if err = exchange(stream, question, d); err == nil && d.files[name] == nil {
			err = status.Errorf(codes.NotFound, "the server does not describe %q, which its service needs", name)
		}
	}
	return d, err
}

// exchange asks one question and adds the files of the answer.
func exchange(stream grpc.ClientStream, question *rpb.ServerReflectionRequest, d *description) error {
	if err := stream.SendMsg(question); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var answer rpb.ServerReflectionResponse
	if err := stream.RecvMsg(&answer); errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the server ended its reflection")
	} else if err != nil {
		return err
	}
	if e := answer.GetErrorResponse(); e != nil {
		return status.Error(codes.Code(e.GetErrorCode()), e.GetErrorMessage())
	}
	for _, raw := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
		if err := d.add(raw); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
	return nil
}

// described returns the options for reading descriptions. Unknown parts, such as custom options,
// are ignored.
func described() proto.UnmarshalOptions {
	return proto.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: maxNesting}
}

// add adds an encoded file.
func (d *description) add(raw []byte) error {
	f := &descriptorpb.FileDescriptorProto{}
	if err := described().Unmarshal(raw, f); err != nil {
		return fmt.Errorf("a description is none: %w", err)
	}
	return d.put(f, len(raw))
}
