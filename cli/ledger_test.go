package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/stream/wire"
)

func TestTheLedgersSettings(t *testing.T) {
	tests := map[string]struct{ config, says string }{
		"alone, it is local":            {"role: combined", "ledger: local"},
		"many workers share it":         {"role: effect", "ledger: shared"},
		"as it is said":                 {"role: effect\neffects: {ledger: local}", "ledger: local"},
		"alone, it hands over":          {"role: combined", "handoff: true"},
		"it does not where it is told":  {"role: combined\neffects: {handoff: false}", "handoff: false"},
		"nothing is to be handed over":  {"role: effect\neffects: {handoff: true, ledger: local}", "handoff: false"},
		"sagas alone":                   {"role: saga\neffects: {handoff: true}", "handoff: false"},
		"another could take it as well": {"role: combined\neffects: {handoff: true, ledger: shared}", "handoff: false"},
		"claims live as commands do":    {"", "retention: 168h0m0s"},
		"another word":                  {"effects: {ledger: both}", `effects.ledger "both": want local or shared`},
		"forgotten at once":             {"effects: {retention: 10m}", "effects.retention 10m0s: want 1h0m0s or more"},
		"no retention":                  {"effects: {retention: 0s}", "effects.retention 0s: want 1h0m0s or more"},
		"a lease that no disk keeps":    {"effects: {lease: 10ms}", "effects.lease 10ms: want 1s or more"},
		"room for no command":           {"effects: {held_bytes: 1000}", "effects.held_bytes 1000: want 1048576 or more"},
		"an ack wait that nobody meets": {"effects: {ack_wait: 5ms}", "effects.ack_wait 5ms: want 1s or more"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if said := configView(t, test.config); !strings.Contains(said, test.says) {
				t.Errorf("%q is not in %s", test.says, said)
			}
		})
	}
}

// count is how many calls there were.
func (s *shop) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.keys {
		n += times
	}
	return n
}

// workerConfig is a configuration that may call the shop.
func workerConfig(t *testing.T, effects string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, file, "effects: {allow: [127.0.0.1]"+effects+"}\n")
	return file
}

func TestWorkersThatDoNotShareTheirLedgerAreRefused(t *testing.T) {
	shop := newShop(t)
	nats := startNATS(t, "127.0.0.1:0")
	dir := folder(t, map[string]string{"order.yaml": orderSaga, "effects.yaml": shop.effects()})
	run := func(role, effects string) *running {
		return startRun(t, nats.URL(), dir, "--role", role, "--config", workerConfig(t, effects), "--data", t.TempDir(), "--adopt-empty")
	}
	first := run("combined", "")
	first.err.wait(t, started)
	second := run("effect", "")
	second.err.wait(t, `\(ended\)`)
	if code := second.stop(); code != 1 || !strings.Contains(second.err.String(), "with effects.ledger: local, this one has effects.ledger: shared: set effects.ledger: shared for both") {
		t.Errorf("%d %s", code, second.err)
	}
	if code := first.stop(); code != 0 {
		t.Fatalf("%d %s", code, first.err)
	}
	for _, r := range []*running{run("combined", ", ledger: shared"), run("effect", ""), run("effect", "")} { // at once
		r.err.wait(t, started)
	}
}

func TestAReloadTakesNoEffectThatAnotherHasInItsOwnLedger(t *testing.T) {
	shop := newShop(t)
	nats := startNATS(t, "127.0.0.1:0")
	mail := "effect: mail\nhttp: {method: POST, url: \"" + shop.URL + "/mail\"}\n"
	first := startRun(t, nats.URL(), folder(t, map[string]string{"mail.yaml": mail}),
		"--role", "effect", "--config", workerConfig(t, ", ledger: local"), "--data", t.TempDir())
	first.err.wait(t, started)
	dir := folder(t, map[string]string{"effects.yaml": shop.effects()})
	second := startRun(t, nats.URL(), dir, "--role", "effect", "--config", workerConfig(t, ", ledger: local"), "--data", t.TempDir())
	second.err.wait(t, started)
	write(t, filepath.Join(dir, "mail.yaml"), mail)
	if code, out := second.edda(t, "reload"); code != 1 || !strings.Contains(out, "takes the same commands") {
		t.Errorf("%d %s", code, out)
	}
	first.stop()
	if code, out := second.edda(t, "reload"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	third := startRun(t, nats.URL(), folder(t, map[string]string{"mail.yaml": mail}),
		"--role", "effect", "--config", workerConfig(t, ", ledger: local"), "--data", t.TempDir())
	third.err.wait(t, `\(ended\)`)
	if !strings.Contains(third.err.String(), "takes the same commands") {
		t.Errorf("%s", third.err)
	}
}

// TestWhatWasDoneBeforeTheLedgerWasSharedIsNotDoneAgain delivers a command again
// after the switch.
func TestWhatWasDoneBeforeTheLedgerWasSharedIsNotDoneAgain(t *testing.T) {
	shop := newShop(t)
	server := startNATS(t, "127.0.0.1:0")
	sagas := startRun(t, server.URL(), folder(t, map[string]string{"order.yaml": orderSaga}), "--role", "saga", "--data", t.TempDir())
	sagas.err.wait(t, started)
	data, dir := t.TempDir(), folder(t, map[string]string{"effects.yaml": shop.effects()})
	local := startRun(t, server.URL(), dir, "--role", "effect", "--config", workerConfig(t, ", ledger: local"), "--data", data)
	local.err.wait(t, started)
	sagas.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1"}`)
	sagas.until(t, `"tracking":"Z9"`, "instance", "describe", "order", "O1", "--tenant", "default")
	local.stop()
	calls := shop.count()

	js := jetStream(t, server.URL())
	commands, err := js.Stream(t.Context(), wire.WorkflowCommands)
	if err != nil {
		t.Fatal(err)
	}
	command, err := commands.GetLastMsgForSubject(t.Context(), "tenant.default.effect.ship.*")
	if err != nil {
		t.Fatal(err)
	}
	shared := startRun(t, server.URL(), dir, "--role", "effect", "--config", workerConfig(t, ""), "--data", data)
	shared.err.wait(t, started)
	again, err := js.Publish(t.Context(), command.Subject, command.Data)
	if err != nil {
		t.Fatal(err)
	}
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !settled(t, commands, again.Sequence) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it is not settled; %s", shared.err)
		}
	}
	if n := shop.count(); n != calls {
		t.Errorf("%d calls more", n-calls)
	}
}

func jetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// settled tells whether a consumer's workers have acked all up to seq.
func settled(t *testing.T, s jetstream.Stream, seq uint64) bool {
	t.Helper()
	list := s.ListConsumers(t.Context())
	for info := range list.Info() {
		if info.AckFloor.Stream >= seq {
			return true
		}
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return false
}
