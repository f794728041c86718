package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestTheHintOfANestedKeyRepeatsTheKey(t *testing.T) {
	for text, want := range map[string]string{
		"tokens: tokens.yaml":           "tokens is a group of settings and has no value of its own; it holds tokens.file\n",
		"hero: {runner: {id: 1, x: 2}}": "unknown key hero.runner.x",
		"hero: {api: 9}":                "hero.api is a group of settings and has no value of its own; it holds hero.api.http_ip, hero.api.http_port,",
		"nats: {urll: x}":               "unknown key nats.urll; did you mean nats.url?",
		"hero: {api: }":                 "hero.api is a group of settings and has no value of its own; it holds hero.api.http_ip, hero.api.http_port,",
		"tls: true":                     "tls is a group of settings and has no value of its own; it holds tls.cert, tls.key, tls.client_ca, tls.elsewhere\n",
	} {
		file := filepath.Join(t.TempDir(), "edda.yaml")
		write(t, file, text+"\n")
		if code, _, said := shell(t, nil, "config", "view", "--config", file); code != exitUsage || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s", text, code, said)
		}
	}
	if code, _, said := shell(t, []string{"EDDA_TOKENS=t.yaml"}, "config", "view"); code != exitUsage || !strings.Contains(said, "unknown variable EDDA_TOKENS; the settings of tokens are EDDA_TOKENS_FILE") {
		t.Errorf("%d %s", code, said)
	}
}

// A value of another type was reported in the decoder's words: expected type 'map[string]node.sourceConfig'.
func TestASettingOfAnotherTypeNamesWhatItTakes(t *testing.T) {
	for text, want := range map[string]string{
		"- data: x":                                    "a configuration is a map of settings, such as data: edda-data, and not a list",
		"sources: [{stream: ORDERS}]":                  "sources is a map of names, and not a list: write sources: {NAME: {stream: …}}",
		"sources: ORDERS":                              `sources is a map of names, and not "ORDERS": write`,
		"sources: {shop: ORDERS}":                      "sources.shop is a group of settings and has no value of its own; it holds sources.shop.stream,",
		"sources: {shop: {stream: [ORDERS]}}":          "sources.shop.stream: want one value, and not a list",
		"streams: {age: [{WORKFLOW_COMMANDS: 168h}]}":  "streams.age is a map of names, and not a list: write age: {NAME: …}",
		"streams: {age: {WORKFLOW_COMMANDS: 7 days}}":  `streams.age.WORKFLOW_COMMANDS: want a duration such as 90s, 30m or 168h, and not "7 days"`,
		"hero: {runner: {interpreters: [python3]}}":    "hero.runner.interpreters is a map of names, and not a list: write interpreters: {NAME: […]}",
		"hero: {runner: {interpreters: {sh: {a: b}}}}": "hero.runner.interpreters.sh is a list, and not a map: write […]",
		"manifests: {a: b}":                            "manifests is a list, and not a map: write […]",
		"manifests: [a, [b]]":                          "manifests[1]: want one value, and not a list",
		"data: [a]":                                    "data: want one value, and not a list",
		"outbox: {max: many}":                          `outbox.max: want a whole number, and not "many"`,
		"effects: {handoff: maybe}":                    `effects.handoff: want true or false, and not "maybe"`,
	} {
		file := filepath.Join(t.TempDir(), "edda.yaml")
		write(t, file, text+"\n")
		code, _, said := shell(t, nil, "config", "view", "--config", file)
		if code != exitUsage || !strings.Contains(said, file+": "+want) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: %d %s", text, code, said)
		}
	}
	if code, _, said := shell(t, []string{"EDDA_OUTBOX_MAX=many"}, "config", "view"); code != exitUsage || !strings.Contains(said, `configuration: outbox.max: want a whole number, and not "many"`) {
		t.Errorf("%d %s", code, said)
	}
	good := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, good, "tenants: acme,shop\noutbox: {max: \"0x10\"}\nnats: {sync_interval: 0}\nstreams: {age: {WORKFLOW_COMMANDS: 168h}, cloudevents: facts}\neffects: {handoff: \"true\"}\nsources:\n")
	if code, _, said := shell(t, nil, "config", "view", "--config", good); code != exitDone {
		t.Errorf("%d %s", code, said)
	}
}

func TestTheLogNamesAnotherPortThanTheNATSHas(t *testing.T) {
	d := startDev(t, folder(t, map[string]string{"loan.yaml": loanSaga}), "--data", t.TempDir(), "--log", "info")
	if m := d.err.wait(t, `"msg":"nats is connected","url":"([^"]*)"`); m[1] != d.nats {
		t.Errorf("the log says %s, and NATS is at %s", m[1], d.nats)
	}
}

func TestDevWithoutAPathIsAnError(t *testing.T) {
	dir := folder(t, map[string]string{"compose.yaml": "services: {}\n", ".hidden.yaml": "saga: x\n"})
	if err := os.MkdirAll(filepath.Join(dir, "sagas"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if code, _, said := shell(t, nil, "dev"); code != exitUsage || !strings.Contains(said, "there is no saga and no effect in this folder") || !strings.Contains(said, "edda init") {
		t.Fatalf("without any: %d %s", code, said)
	}
	write(t, filepath.Join("sagas", "loan.yaml"), loanSaga)
	d := startDev(t)
	if m := d.out.wait(t, `sagas +(\S+)`); m[1] != "loan" {
		t.Errorf("it runs %s", m[1])
	}
	d.err.wait(t, "no manifests, and passed over: compose.yaml, pipe.yaml")
	write(t, "order.yaml", orderSaga) // what comes later is taken in, too
	d.out.wait(t, "Reloaded: sagas loan v1, order v1;")
	if code := d.stop(); code != exitDone {
		t.Errorf("exit code %d: %s", code, d.err)
	}
}

// TestADeadLetterTakesTwoLinesOfATable: a CloudEvent with two mistakes had a line
// end in its error.
func TestADeadLetterTakesTwoLinesOfATable(t *testing.T) {
	var out strings.Builder
	rows(&out, []string{"id", "error"}, [][]string{{"1", "id: is missing\nsource:\tREQUIRED\r\n"}, {"2", "\x1b[2Jx"}})
	if want := "ID  ERROR\n1   id: is missing source: REQUIRED\n2   \ufffd[2Jx\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestTheVersionIsNoFlag(t *testing.T) {
	_, want, _ := shell(t, nil, "version")
	if code, out, said := shell(t, nil, "--version"); code != exitDone || out != want || !strings.HasPrefix(out, "edda ") {
		t.Errorf("%d %q %q, want %q", code, out, said, want)
	}
	for _, word := range []string{"list", "ps"} {
		if code, _, said := shell(t, nil, word); code != exitUsage || !strings.Contains(said, "instance?") {
			t.Errorf("%s: %d %s", word, code, said)
		}
	}
}

func TestDevTakesTheManifestsThatTheFolderNames(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		said  string
		sagas string
	}{
		{"those of edda.yaml", map[string]string{"edda.yaml": "manifests: [sagas, more/order.yaml]\n", "sagas/loan.yaml": loanSaga, "more/order.yaml": orderSaga, "manifests/other.yaml": otherSaga},
			"edda: takes the manifests of edda.yaml: sagas, more/order.yaml", "loan v1, order v1"},
		{"those of manifests/", map[string]string{"manifests/loan.yaml": loanSaga, "other.yaml": otherSaga, "edda.yaml": "# manifests: []\n"},
			"edda: takes the manifests in manifests/", "loan v1"},
		{"all of the folder", map[string]string{"loan.yaml": loanSaga, "deep/order.yaml": orderSaga, "manifests/notes.yaml": "a: b\n"},
			"edda: takes the manifests of this folder: ", "loan v1, order v1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o750); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, name), text)
			}
			t.Chdir(dir)
			d := startDev(t)
			if m := d.out.wait(t, `sagas +(.*)`); m[1] != tt.sagas {
				t.Errorf("it runs %s", m[1])
			}
			d.err.wait(t, regexp.QuoteMeta(tt.said))
			d.stop()
		})
	}
}

const otherSaga = "saga: other\nkey: event.id\non:\n  Opened: {start: true}\n  Closed: {do: [{done: ok}]}\n"

func TestABrokenConfigurationOfTheFolderIsNotPassedOver(t *testing.T) {
	dir := folder(t, map[string]string{"edda.yaml": "manifest: sagas\n", "loan.yaml": loanSaga})
	t.Chdir(dir)
	if code, _, said := shell(t, nil, "dev"); code != exitUsage || !strings.Contains(said, "edda.yaml: unknown key manifest; did you mean manifests?") {
		t.Errorf("%d %s", code, said)
	}
}

func TestASagaThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	d := startDev(t, folder(t, map[string]string{"loan.yaml": loanSaga}), "--data", t.TempDir())
	for want, commands := range map[string][][]string{
		"there is no saga lona; did you mean loan?": {{"ls", "--saga", "lona"}, {"instance", "list", "--saga", "lona"}, {"instance", "describe", "lona", "L1"}, {"instance", "history", "lona", "L1"},
			{"instance", "signal", "lona", "L1", "go"}, {"instance", "answer", "lona", "L1", "a", "yes"}, {"instance", "cancel", "lona", "L1", "--why", "x", "-y"}, {"instance", "retry", "lona", "L1", "s", "--why", "x"}},
		"there is no saga quite_another: there are loan": {{"ls", "--saga", "quite_another"}},
		"no instance of loan with the key":               {{"instance", "describe", "loan", "L1"}},
	} {
		for _, args := range commands {
			if code, out := d.edda(t, args...); code != exitFailed || !strings.Contains(out, want) {
				t.Errorf("%v: %d %s", args, code, out)
			}
		}
	}
	for _, args := range [][]string{{"ls"}, {"ls", "--saga", "loan"}} {
		if code, out := d.edda(t, args...); code != exitDone || !strings.HasPrefix(out, "SAGA") {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
}
