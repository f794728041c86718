package grpceffect

import (
	"context"
	"encoding/json"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
	"edda/manifests"
)

// example is the manifest that comes with the program, for this bank.
func example(t *testing.T, b *bank) *effects.Effect {
	t.Helper()
	text, err := fs.ReadFile(manifests.Examples(), "effect-grpc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e, problems := compile(t, "effect-grpc.yaml", strings.ReplaceAll(string(text), "127.0.0.1:8798", b.addr))
	if e == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	return e
}

func charge(id string) effects.Command {
	return effects.Command{Tenant: "acme", ID: id, Effect: "charge_card", Payload: json.RawMessage(`{"order_id":"o1","amount_cents":9007199254740993}`)}
}

func TestExample(t *testing.T) {
	b := openBank(t, describedV1)
	desk := effecttest.Work(t, example(t, b), local(t))
	b.answers(func(ctx context.Context, in *dynamicpb.Message) (any, error) {
		if b.count("c1") < 3 {
			return nil, status.Error(codes.ResourceExhausted, "slow down")
		}
		return usual(ctx, in)
	})
	r := desk.Do(charge("c1"))
	if r.Outcome != edda.Succeeded || string(r.Payload) != `{"amount_cents":9007199254740993,"receipt":"P1"}` || r.Attempts != 3 {
		t.Errorf("result %s %s after %d calls", r.Outcome, r.Payload, r.Attempts)
	}
	if got := b.asked.Get(b.asked.Descriptor().Fields().ByName("amount_cents")).Int(); got != 9007199254740993 || strings.Join(b.md["x-tenant"], "") != "acme" {
		t.Errorf("the bank saw amount %d of tenant %q", got, b.md["x-tenant"])
	}
}

// TestOutcomes are what a saga hears of each answer of the bank.
func TestOutcomes(t *testing.T) {
	b := openBank(t, describedV1)
	desk := effecttest.Work(t, example(t, b), local(t))
	for _, tt := range []struct {
		id      string
		answer  any
		code    codes.Code
		outcome edda.Outcome
		calls   int
		want    string
	}{
		{"paid", `{"id":"P2"}`, 0, edda.Succeeded, 1, `"receipt":"P2"`},
		{"declined", `{"declined":true}`, 0, edda.Failed, 1, `"code":"0"`},
		{"invalid", nil, codes.InvalidArgument, edda.Failed, 1, `"code":"INVALID_ARGUMENT"`},
		{"denied", nil, codes.PermissionDenied, edda.Failed, 1, `"code":"PERMISSION_DENIED"`},
		{"full", nil, codes.ResourceExhausted, edda.Failed, 5, `"status":8`},
	} {
		b.answers(func(context.Context, *dynamicpb.Message) (any, error) {
			return tt.answer, status.Error(tt.code, "because")
		})
		r := desk.Do(charge(tt.id))
		if r.Outcome != tt.outcome || r.Attempts != tt.calls || b.count(tt.id) != tt.calls || !strings.Contains(string(r.Payload), tt.want) {
			t.Errorf("%s: %s %s after %d calls, of which the bank saw %d", tt.id, r.Outcome, r.Payload, r.Attempts, b.count(tt.id))
		}
	}
}

// TestCallsThatMayHaveBeenDone are asked for before anything is called again.
func TestCallsThatMayHaveBeenDone(t *testing.T) {
	for _, tt := range []struct {
		name    string
		found   any
		code    codes.Code
		charges int64
	}{
		{"it was done", `{"id":"P1"}`, codes.OK, 1},
		{"it was not done", nil, codes.NotFound, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := openBank(t, describedV1)
			var charges atomic.Int64
			b.answers(func(ctx context.Context, in *dynamicpb.Message) (any, error) {
				if in.Descriptor().Name() == "FindRequest" {
					return tt.found, status.Error(tt.code, "nobody")
				}
				if charges.Add(1) == 1 {
					return nil, status.Error(codes.Unavailable, "upstream connect error or disconnect")
				}
				return usual(ctx, in)
			})
			r := effecttest.Work(t, example(t, b), local(t)).Do(charge("c1"))
			if r.Outcome != edda.Succeeded || charges.Load() != tt.charges {
				t.Errorf("%s %s after %d charges, want %d", r.Outcome, r.Payload, charges.Load(), tt.charges)
			}
		})
	}
}

// TestRefusalAfterADoubt: a token that has run out says nothing of the charge
// before it.
func TestRefusalAfterADoubt(t *testing.T) {
	for code, outcome := range map[codes.Code]edda.Outcome{codes.Unauthenticated: edda.TimedOut, codes.AlreadyExists: edda.TimedOut, codes.InvalidArgument: edda.Failed} {
		b := openBank(t, describedV1)
		e, problems := compile(t, "e.yaml", `effect: charge_card
grpc: {target: "`+b.addr+`", method: shop.v1.Payments/Charge, plaintext: true, message: {order: =payload.order_id}}
retry: {max: 3, backoff: 1ms}
`)
		if e == nil {
			t.Fatal(problems)
		}
		b.answers(func(context.Context, *dynamicpb.Message) (any, error) {
			if b.count("c1") == 1 {
				return nil, status.Error(codes.Unavailable, "upstream connect error or disconnect")
			}
			return nil, status.Error(code, "because")
		})
		if r := effecttest.Work(t, e, local(t)).Do(charge("c1")); r.Outcome != outcome || r.Attempts != 2 {
			t.Errorf("%s: %s %s after %d calls, want %s", code, r.Outcome, r.Payload, r.Attempts, outcome)
		}
	}
}

// TestSecretsAreNotInResults, whoever says them.
func TestSecretsAreNotInResults(t *testing.T) {
	b := openBank(t, describedV1)
	e, problems := compile(t, "e.yaml", `effect: charge_card
grpc: {target: "`+b.addr+`", method: shop.v1.Payments/Charge, plaintext: true, metadata: {authorization: "Bearer ${secret.BANK}"}, message: {order: =payload.order_id, amountCents: =payload.wrong}}
`)
	if e == nil {
		t.Fatal(problems)
	}
	b.fails(status.Error(codes.PermissionDenied, "Bearer s3cret is nobody"))
	r := effecttest.Work(t, e, local(t)).Do(charge("c1"))
	if r.Outcome != edda.Failed || strings.Contains(string(r.Payload), "s3cret") {
		t.Errorf("result %s %s", r.Outcome, r.Payload)
	}
}
