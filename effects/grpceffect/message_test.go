package grpceffect

import (
	"errors"
	"strings"
	"testing"

	"edda"
	"edda/effects"
)

func TestMessagesThatDoNotFit(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	for _, tt := range []struct {
		message any
		want    string
	}{
		{map[string]any{"oder": "s3cret"}, `unknown field "oder"`},
		{map[string]any{"items": []any{map[string]any{"sku": "s", "s\"k": 1}}}, `unknown field "s\"k"`},
		{map[string]any{"byName": map[string]any{"a": map[string]any{"x": 1}}}, `unknown field "x"`},
		{map[string]any{"order": 7}, "invalid value for string field order"},
		{map[string]any{"amountCents": "s3cret"}, "invalid value for int64 field amountCents"},
		{map[string]any{"amountCents": 2.5}, "invalid value for int64 field amountCents"},
		{map[string]any{"amountCents": 1, "amount_cents": 1}, `duplicate field "amount`},
		{map[string]any{"items": "s3cret"}, "has another form"},
		{map[string]any{"order": "x", "amountCents": map[string]any{"s3cret": 1}}, "invalid value for int64 field amountCents"},
		{"s3cret", "message is no map"},
		{[]any{1}, "message is no map"},
	} {
		_, err := b.call(p, "k", map[string]any{"message": tt.message})
		if !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.message, err, tt.want)
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows a value: %v", err)
		}
	}
	if b.calls() != 0 {
		t.Errorf("%d of them were sent", b.calls())
	}
}

func TestMessage(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	message := map[string]any{"order": "o1", "amount_cents": 9007199254740993, "items": []any{map[string]any{"sku": "a", "count": 2}}, "byName": map[string]any{"x": map[string]any{}}, "note": nil}
	r, err := b.call(p, "k", map[string]any{"message": message})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]any{"id": "P1", "amountCents": 9007199254740993, "declined": false}; show(r.Body) != show(want) {
		t.Errorf("answer %#v, want %#v", r.Body, want)
	}
	fields := b.asked.Descriptor().Fields()
	if got := b.asked.Get(fields.ByName("amount_cents")).Int(); got != 9007199254740993 || b.method != "/shop.v1.Payments/Charge" {
		t.Errorf("%s with amount %d", b.method, got)
	}
	if b.asked.Has(fields.ByName("note")) {
		t.Error("null was sent as a value")
	}
}

func TestNoMessageIsAnEmptyOne(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	if r, err := b.call(p, "k", map[string]any{"message": nil}); err != nil || r.Status != 0 {
		t.Errorf("answer %+v %v", r, err)
	}
}

func TestMessageThatIsTooLargeIsNotSent(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	_, err := b.call(p, "k", map[string]any{"message": map[string]any{"order": strings.Repeat("x", maxMessage)}})
	if !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) || b.calls() != 0 {
		t.Errorf("error %v after %d calls", err, b.calls())
	}
}
