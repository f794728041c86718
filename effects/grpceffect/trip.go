package grpceffect

import (
	"context"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
)

// frame is an encoded message on its way through grpc, which must not look into
// it: what is sent and what was received are judged here.
type frame struct {
	data []byte
	// taken is set when grpc asks for the bytes, which it does once it has a
	// stream: until then nobody can have seen them.
	taken bool
}

// codec hands frames through. Its name is what the other side sees as content type.
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

// trip is what came back of one call. A status says nothing of who made it, and
// only one that the other side sent is an answer.
type trip struct {
	begun    atomic.Bool // the other side sent headers before its status
	answered atomic.Bool // it sent a status
}

// ownStatus begins the message of a status that grpc makes where it cannot take
// a message: too long, or compressed in a way it does not know. Tests hold it to that.
const ownStatus = "grpc: "

// unread tells of an answer that grpc threw away: what the call did is not in
// its status.
func (t *trip) unread(err error) bool {
	return t.begun.Load() && strings.HasPrefix(text(err), ownStatus)
}

type tripKey struct{}

func (t *trip) in(ctx context.Context) context.Context { return context.WithValue(ctx, tripKey{}, t) }

// witness tells trips what came back.
type witness struct{}

func (witness) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (witness) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (witness) HandleConn(context.Context, stats.ConnStats)                       {}
func (witness) HandleRPC(ctx context.Context, s stats.RPCStats) {
	t, ok := ctx.Value(tripKey{}).(*trip)
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
