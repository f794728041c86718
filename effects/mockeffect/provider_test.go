package mockeffect

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edda/effects"
	"edda/manifests"
)

const text = `saga: order
key: event.order
on:
  Placed:
    start: true
    do:
      - each: event.items
        id: hold
        do: [{effect: reserve, with: {sku: =item}, undo: {effect: release, with: =input}}]
      - {effect: charge, id: pay}
  pay.ok: {do: [{effect: ship}]}
tests:
  - name: declined
    steps:
      - {event: Placed, data: {order: O1, items: [a]}}
      - {failed: pay, data: {code: declined}}
      - {ok: "hold[0]", data: {bin: 9}}
  - name: shipped
    steps:
      - {event: Placed, data: {order: O1, items: [a, b]}}
      - {ok: "hold[0]", data: {bin: 1}}
      - {ok: "hold[1]", data: {bin: 2}}
      - {ok: pay, data: {id: P1}}
      - {ok: ship}
    end: {status: done}
---
saga: gift
key: event.gift
on:
  Given: {start: true, do: [{effect: charge}]}
tests:
  - name: given
    steps: [{event: Given, data: {gift: G1}}, {ok: charge, data: {id: G7}}]
---
effect: reserve
http: {url: "http://127.0.0.1:1/x"}
---
effect: release
http: {url: "http://127.0.0.1:1/x"}
---
effect: charge
http: {url: "http://127.0.0.1:1/x", headers: {Authorization: =secret.NONE}}
ok: status == 201
result: {id: =body.id}
check: {http: {url: "http://127.0.0.1:1/x"}, ok: "true"}
---
effect: ship
http: {url: "http://127.0.0.1:1/x"}
result: {tracking: =body.tracking, carrier: post}
---
effect: never
http: {url: "http://127.0.0.1:1/x"}
result: {tracking: =body.tracking, carrier: post, size: {cm: =body.cm}}
`

func parsed(t *testing.T) *manifests.File {
	t.Helper()
	f, problems := manifests.Parse("order.yaml", []byte(text))
	if problems.Failed() {
		t.Fatal(problems)
	}
	return f
}

// learned is a provider of these manifests, and what it told.
func learned(t *testing.T) (*Provider, *[]Called) {
	t.Helper()
	f := parsed(t)
	var told []Called
	p := New(func(c Called) { told = append(told, c) })
	p.Learn(f.Sagas, f.Effects)
	return p, &told
}

func ask(t *testing.T, p *Provider, saga, step, effect string) (effects.Response, error) {
	t.Helper()
	return p.Call(t.Context(), effects.Call{Effect: effect, Command: &effects.Command{Metadata: []byte(`{"saga":"` + saga + `","key":"K1","step":"` + step + `"}`)}})
}

func TestAnEffectAnswersAsTheTestsOfItsSagaDo(t *testing.T) {
	tests := []struct {
		name, saga, step, effect string
		want                     any
		from                     string
	}{
		{"the test that ends in done comes first", "order", "hold[0]", "reserve", map[string]any{"bin": 1}, `test "shipped"`},
		{"a member has its own answer", "order", "hold[1]", "reserve", map[string]any{"bin": 2}, `test "shipped"`},
		{"a member that no test has takes that of its effect", "order", "hold[7]", "reserve", map[string]any{"bin": 1}, `test "shipped"`},
		{"a step with an id", "order", "pay", "charge", map[string]any{"id": "P1"}, `test "shipped"`},
		{"another saga's answer to the same effect", "gift", "charge", "charge", map[string]any{"id": "G7"}, `test "given"`},
		{"a saga without tests takes any saga's", "other", "charge", "charge", map[string]any{"id": "P1"}, `test "shipped"`},
		{"an ok without data", "order", "ship", "ship", map[string]any{}, `test "shipped"`},
		{"an effect in no test has the fields of its result", "order", "never", "never",
			map[string]any{"tracking": "mock tracking", "carrier": "post", "size": map[string]any{"cm": "mock cm"}}, "no test"},
		{"an undo in no test", "order", "hold[0].undo", "release", map[string]any{}, "no test"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, told := learned(t)
			got, err := ask(t, p, tt.saga, tt.step, tt.effect)
			if err != nil || got.Status != statusOK {
				t.Fatalf("%+v, %v", got, err)
			}
			if diff := cmp.Diff(tt.want, got.Body); diff != "" {
				t.Errorf("the answer differs:\n%s", diff)
			}
			if c := (*told)[0]; len(*told) != 1 || c.From != tt.from || c.Key.Correlation != "K1" || c.Step != tt.step {
				t.Errorf("told %+v", *told)
			}
		})
	}
}

func TestAnOrderCountsItsCalls(t *testing.T) {
	p, _ := learned(t)
	if p.Tell("charj", Override{Answer: Failed}) {
		t.Error("an effect that is not there takes an order")
	}
	p.Tell("charge", Override{Answer: Failed, Code: "declined", Times: 2})
	for i, want := range []int{statusFailed, statusFailed, statusOK} {
		got, err := ask(t, p, "order", "pay", "charge")
		if err != nil || got.Status != want {
			t.Errorf("call %d: %+v, %v", i+1, got, err)
		}
		if body, _ := got.Body.(map[string]any); want == statusFailed && body["code"] != "declined" {
			t.Errorf("call %d: %v", i+1, body)
		}
	}
}

func TestAnOrderStaysUntilAnother(t *testing.T) {
	p, _ := learned(t)
	p.Tell("charge", Override{Answer: Down})
	for range 3 {
		if _, err := ask(t, p, "order", "pay", "charge"); !errors.Is(err, effects.ErrNotSent) {
			t.Errorf("an effect that is down answered: %v", err)
		}
	}
	p.Tell("charge", Override{Answer: Timeout})
	if got, err := ask(t, p, "order", "pay", "charge"); err != nil || !got.Unknown || got.Retry {
		t.Errorf("a timeout is %+v, %v", got, err)
	}
	p.Tell("charge", Override{Answer: OK, Result: []byte(`{"id":"other"}`)})
	if got, _ := ask(t, p, "order", "pay", "charge"); got.Body.(map[string]any)["id"] != "other" {
		t.Errorf("the result is %v", got.Body)
	}
	p.Tell("charge", Override{Answer: OK})
	if got, _ := ask(t, p, "order", "pay", "charge"); got.Body.(map[string]any)["id"] != "P1" {
		t.Errorf("the result is %v, and the order is over", got.Body)
	}
}

func TestACallThatHasEndedIsNotAnswered(t *testing.T) {
	p, told := learned(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Call(ctx, effects.Call{Effect: "ship"}); !errors.Is(err, effects.ErrNotSent) || len(*told) != 0 {
		t.Errorf("%v, told %v", err, *told)
	}
}

func TestAStandInNeedsNoSecretAndJudgesNothing(t *testing.T) {
	for _, m := range parsed(t).Effects {
		e, problems := effects.Compile(StandIn(m), map[string]effects.ProviderKind{Word: Kind()})
		if e == nil {
			t.Fatal(problems)
		}
		if len(e.Secrets()) > 0 || e.Provider() != Word || e.Hash() != m.Hash {
			t.Errorf("%s: secrets %v, provider %s", e.Name(), e.Secrets(), e.Provider())
		}
	}
}
