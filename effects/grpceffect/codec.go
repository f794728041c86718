package grpceffect

import (
	"context"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
)

// frame is an encoded message, which grpc passes on unread.
type frame struct {
	data []byte
	// taken is set when grpc asks for the bytes. It does so once it has a stream, so before that
	// the server cannot have seen them.
	taken bool
}

// codec passes frames on. Its name is in the content type.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	f := v.(*frame)
	f.taken = true
	return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*frame).data = data.Materialize()
	return nil
}

// progress is what the server has sent for one call. A status does not say who made it, and only
// the server's is an answer.
type progress struct {
	begun    atomic.Bool // the server sent headers before its status
	answered atomic.Bool // the server sent a status
}

// ownStatus begins the message of a status that grpc makes for a message that it refuses: too long,
// or compressed in an unknown way. Tests check it against grpc.
const ownStatus = "grpc: "

// unread reports whether grpc discarded an answer, so that its status says nothing about the call.
func (t *progress) unread(err error) bool {
	return t.begun.Load() && strings.HasPrefix(text(err), ownStatus)
}

type progressKey struct{}

func (t *progress) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, progressKey{}, t)
}

// witness records the progress of calls.
type witness struct{}

func (witness) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (witness) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (witness) HandleConn(context.Context, stats.ConnStats)                       {}
func (witness) HandleRPC(ctx context.Context, s stats.RPCStats) {
	t, ok := ctx.Value(progressKey{}).(*progress)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.InHeader:
		t.begun.Store(true)
	case *stats.InTrailer:
		t.answered.Store(true)
	}
}
