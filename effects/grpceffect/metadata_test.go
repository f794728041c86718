package grpceffect

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/dynamicpb"

	"edda"
	"edda/effects"
)

const traceText = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestMetadata(t *testing.T) {
	b := openBank(t, describedV1)
	_, err := local(t).Call(t.Context(), effects.Call{ID: "c1", Key: "k1", Trace: traceText, Config: b.config(map[string]any{"metadata": map[string]any{
		"Authorization": "Bearer s", "x-many": []any{"a", 2, nil}, "x-none": nil, "x-raw-bin": "AP8=", "x-empty": "",
	}})})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"authorization": "Bearer s", "x-many": "a,2", "x-none": "", "x-raw-bin": "\x00\xff", "x-empty": "", "idempotency-key": "k1", "traceparent": traceText,
	} {
		if got := strings.Join(b.md[name], ","); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := b.md["user-agent"]; len(got) != 1 || !strings.HasPrefix(got[0], "edda") {
		t.Errorf("user agent %q", got)
	}
}

func TestManifestMayNameTheKeyItself(t *testing.T) {
	b := openBank(t, describedV1)
	_, err := local(t).Call(t.Context(), effects.Call{Key: "k1", Trace: "no trace", Config: b.config(map[string]any{"metadata": map[string]any{"Idempotency-Key": "mine"}})})
	if err != nil || strings.Join(b.md["idempotency-key"], ",") != "mine" || len(b.md["traceparent"]) != 0 {
		t.Errorf("key %q trace %q %v", b.md["idempotency-key"], b.md["traceparent"], err)
	}
}

func TestMetadataThatCannotBeSent(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	for name, v := range map[string]any{
		"": "s3cret", "a b": "s3cret", "a\r\nb": "s3cret", ":path": "/s3cret", "grpc-timeout": "1S", "content-type": "s3cret", "te": "s3cret", "héader": "s3cret", "host": "s3cret",
		"a": "s3cret\r\nx: y", "b": "s3cret\x00", "c": "s3cretü", "d-bin": "s3cret!", "e": []any{"ok", "s3cret\n"}, "user-agent": "s3cret",
	} {
		_, err := b.call(p, "k", map[string]any{"metadata": map[string]any{name: v}})
		if !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, key := range []string{"a\r\nb", "ü"} {
		if _, err := b.call(p, key); !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) {
			t.Errorf("key %q: %v", key, err)
		}
	}
	if b.method != "" {
		t.Error("something was sent")
	}
}

func TestHeadersAndTrailersComeBack(t *testing.T) {
	b := openBank(t, describedV1)
	b.answers(func(ctx context.Context, in *dynamicpb.Message) (any, error) {
		err := errors.Join(grpc.SetHeader(ctx, metadata.Pairs("X-Head", "h1", "x-head", "h2", "x-raw-bin", "\x00\xff")),
			grpc.SetTrailer(ctx, metadata.Pairs("x-trail", "t", "x-head", "h3")))
		if err != nil {
			t.Error(err)
		}
		return usual(ctx, in)
	})
	r, err := b.call(local(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"x-head": "h1, h2, h3", "x-raw-bin": "AP8=", "x-trail": "t", "content-type": "application/grpc+proto"} {
		if r.Headers[name] != want {
			t.Errorf("%s is %q, want %q", name, r.Headers[name], want)
		}
	}
}

func TestDeadlineGoesOut(t *testing.T) {
	b := openBank(t, describedV1)
	left := make(chan time.Duration, 1)
	b.answers(func(ctx context.Context, in *dynamicpb.Message) (any, error) {
		at, ok := ctx.Deadline()
		if !ok {
			t.Error("the call came without a deadline")
		}
		left <- time.Until(at)
		return usual(ctx, in)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := local(t).Call(ctx, effects.Call{Config: b.config()}); err != nil {
		t.Fatal(err)
	}
	if got := <-left; got < 59*time.Minute || got > time.Hour {
		t.Errorf("the server had %s", got)
	}
}
