package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/effects"
	"edda/effects/httpeffect"
	"edda/manifests"
)

// renewal is the example's files' text: a saga of version 1 of its effect, which
// has gone on to version 3.
func renewal(t *testing.T) string { return embedded(t, "33-effect-version.yaml")[0] }

const contract = `{"contract":"K1","customer":"ann","cents":1999}`

func TestAnOldSagaCallsANewEffect(t *testing.T) {
	inBubble(t, []string{renewal(t)}, func(w *world) {
		w.send("e1", "ContractEnding", "K1", contract)
		w.ends("renewal", "K1", edda.StatusDone)
		w.idle()
		want := fmt.Sprintf(`{"amount":{"cents":1999,"currency":"EUR"},"customer":"ann","reference":"renewal %s"}`, w.shop.all()[0].Key)
		if got := w.shop.all()[0]; got.Effect != "bill_renewal" || got.Body != want {
			t.Errorf("the first call is %+v, want %s", got, want)
		}
		if got := w.shop.all()[1]; got.Effect != "extend_contract" || got.Body != `{"contract":"K1"}` {
			t.Errorf("the second call is %+v", got)
		}
	})
}

// TestANewSagaWaitsForTheNewEffect: where the saga is upgraded before the worker,
// nothing fails and nothing is called until the worker is.
func TestANewSagaWaitsForTheNewEffect(t *testing.T) {
	ahead := strings.Replace(renewal(t), "            version: 1 ", "            version: 4 ", 1)
	if ahead == renewal(t) {
		t.Fatal("the example says no version 1")
	}
	inBubble(t, []string{ahead}, func(w *world) {
		w.send("e1", "ContractEnding", "K1", contract)
		w.pass(time.Now().Add(time.Hour))
		if calls := w.shop.all(); len(calls) != 0 || w.instance("renewal", "K1").Status != edda.StatusRunning {
			t.Fatalf("calls %+v, the saga is %s", calls, w.instance("renewal", "K1").Status)
		}
		if err := w.running.worker.Replace(upgraded(t, ahead)...); err != nil {
			t.Fatal(err)
		}
		w.ends("renewal", "K1", edda.StatusDone)
		w.idle()
		if calls := w.shop.all(); len(calls) != 2 || calls[0].Body != `{"cents":1999,"customer":"ann"}` {
			t.Errorf("calls %+v", calls)
		}
	})
}

// upgraded are the effects, with the bill at version 4 and open to any payload.
func upgraded(t *testing.T, text string) (out []*effects.Effect) {
	t.Helper()
	text = strings.Replace(text, "version: 3", "version: 4", 1)
	text = strings.Replace(text, "additionalProperties: false", "additionalProperties: true", 1)
	text = strings.Replace(text, "required: [customer, amount, reference]", "required: [customer]", 1)
	file, _ := manifests.Parse("upgraded.yaml", []byte(text))
	for _, m := range file.Effects {
		e, problems := effects.Compile(m, map[string]effects.ProviderKind{"http": httpeffect.Kind()})
		if problems.Failed() {
			t.Fatal(problems)
		}
		out = append(out, e)
	}
	return out
}
