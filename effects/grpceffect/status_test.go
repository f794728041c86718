package grpceffect

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// codeTable is what a code is worth: its number and name; called again; surely
// nothing done; may have been done; says nothing of a call before it.
const codeTable = `
0 OK - - - -
1 CANCELLED - - unknown -
2 UNKNOWN retry - unknown -
3 INVALID_ARGUMENT - - - -
4 DEADLINE_EXCEEDED retry - unknown -
5 NOT_FOUND - - - -
6 ALREADY_EXISTS - - - apart
7 PERMISSION_DENIED - - - apart
8 RESOURCE_EXHAUSTED retry refused - -
9 FAILED_PRECONDITION - - - -
10 ABORTED retry - - -
11 OUT_OF_RANGE - - - -
12 UNIMPLEMENTED - - - apart
13 INTERNAL retry - unknown -
14 UNAVAILABLE retry - unknown -
15 DATA_LOSS - - unknown -
16 UNAUTHENTICATED - - - apart
77 UNKNOWN retry - unknown -
`

func TestCodes(t *testing.T) {
	b := openBank(t, describedV1)
	p := local(t)
	var got strings.Builder
	got.WriteByte('\n')
	for _, code := range []codes.Code{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 77} {
		b.answers(func(ctx context.Context, in *dynamicpb.Message) (any, error) {
			if code == codes.OK {
				return usual(ctx, in)
			}
			return nil, status.Error(code, "because")
		})
		r, err := b.call(p, "k")
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		name := "OK"
		if body := r.Body.(map[string]any); code != codes.OK {
			name = body["code"].(string)
			if body["message"] != "because" || show(body["details"]) != show([]any{}) {
				t.Errorf("%s: body %v", code, body)
			}
		}
		fmt.Fprintln(&got, r.Status, name, word(r.Retry, "retry"), word(r.Refused, "refused"), word(r.Unknown, "unknown"), word(r.Apart, "apart"))
	}
	if got.String() != codeTable {
		t.Errorf("codes:%swant:%s", got.String(), codeTable)
	}
}

func word(b bool, s string) string {
	if b {
		return s
	}
	return "-"
}

func TestDetails(t *testing.T) {
	b := openBank(t, describedV1)
	b.fails(status.ErrorProto(&spb.Status{Code: int32(codes.ResourceExhausted), Message: "slow down", Details: []*anypb.Any{
		packed(t, &errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)}),
		packed(t, &errdetails.ErrorInfo{Reason: "QUOTA", Metadata: map[string]string{"a": "b"}}),
		{TypeUrl: "example/nobody.Knows", Value: []byte{1, 2}},
		{TypeUrl: "example/google.rpc.ErrorInfo", Value: []byte{0xff}},
	}}))
	r, err := b.call(local(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(r.Body)
	want := `{"code":"RESOURCE_EXHAUSTED","details":[` +
		`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3s"},` +
		`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"","metadata":{"a":"b"},"reason":"QUOTA"},` +
		`{"@type":"example/nobody.Knows","value":"AQI="},` +
		`{"@type":"example/google.rpc.ErrorInfo"}],"message":"slow down"}`
	if err != nil || string(got) != want {
		t.Errorf("body %s %v\nwant %s", got, err, want)
	}
	if r.After != 3*time.Second {
		t.Errorf("to wait %s", r.After)
	}
	if _, there := r.Headers[statusDetails]; there {
		t.Error("the details are in the headers too")
	}
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestStatusThatIsNotUTF8(t *testing.T) {
	b := openBank(t, describedV1)
	b.fails(status.Error(codes.NotFound, "a\xffb\r\n"))
	r, err := b.call(local(t), "k")
	if err != nil || r.Body.(map[string]any)["message"] != "a\uFFFDb\r\n" {
		t.Errorf("body %q %v", r.Body, err)
	}
}

func TestRetryAfterIsBounded(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{-time.Hour: 0, 0: 0, time.Millisecond: time.Millisecond, 9000 * time.Hour: maxRetryAfter} {
		st, err := status.New(codes.Unavailable, "").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		if err != nil {
			t.Fatal(err)
		}
		if got := retryAfter(st); got != want {
			t.Errorf("%s is %s, want %s", delay, got, want)
		}
	}
}

// TestRefusalAfterHeaders: some servers send their headers before any status;
// a status of theirs is theirs all the same.
func TestRefusalAfterHeaders(t *testing.T) {
	b := openBank(t, describedV1)
	b.answers(func(ctx context.Context, _ *dynamicpb.Message) (any, error) {
		if err := grpc.SendHeader(ctx, metadata.Pairs("x-shop", "open")); err != nil {
			t.Error(err)
		}
		return nil, status.Error(codes.ResourceExhausted, "quota")
	})
	r, err := b.call(local(t), "k")
	if err != nil || r.Status != 8 || !r.Refused || r.Headers["x-shop"] != "open" {
		t.Errorf("answer %+v %v", r, err)
	}
}
