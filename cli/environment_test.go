package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"edda/node"
)

// TestTheAddressToListenOnIsNotTheServerToCall: EDDA_ADDR was both, so that a
// shell that was set up for the client kept edda run from starting.
func TestTheAddressToListenOnIsNotTheServerToCall(t *testing.T) {
	var called int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		called++
		_, _ = w.Write([]byte(`{"audits":[]}`))
	}))
	defer s.Close()
	bare := strings.TrimPrefix(s.URL, "http://")
	const elsewhere = "says where edda run listens, and no more whom commands call: set EDDA_URL="
	for _, c := range []struct {
		name     string
		env      []string
		args     string
		code     int
		said     string
		answered bool
	}{
		{"the variable of callers", []string{"EDDA_URL=" + s.URL}, "", exitDone, "", true},
		{"without a scheme", []string{"EDDA_URL=" + bare}, "", exitDone, "", true},
		{"beside where a process listens", []string{"EDDA_ADDR=0.0.0.0:9", "EDDA_URL=" + s.URL + "/"}, "", exitDone, "", true},
		{"the flag goes first", []string{"EDDA_ADDR=127.0.0.1:1", "EDDA_URL=http://127.0.0.1:1"}, " --addr " + bare, exitDone, "", true},
		{"as it was", []string{"EDDA_ADDR=" + bare}, "", exitUsage, "EDDA_ADDR=" + bare + " " + elsewhere + s.URL + ",", false},
		{"as it was, a URL", []string{"EDDA_ADDR=https://edda.internal"}, "", exitUsage, elsewhere + "https://edda.internal,", false},
		{"another host", []string{"EDDA_ADDR=10.0.0.7:8700"}, "", exitUsage, elsewhere, false},
		{"over TLS", []string{"EDDA_ADDR=10.0.0.7:8700", "EDDA_CA=ca.pem"}, "", exitUsage, elsewhere + "https://10.0.0.7:8700", false},
	} {
		called = 0
		code, _, said := shell(t, c.env, strings.Fields("audit list"+c.args)...)
		if code != c.code || !strings.Contains(said, c.said) || called > 0 != c.answered {
			t.Errorf("%s: %d, %d calls\n%s", c.name, code, called, said)
		}
	}
	for addr, want := range map[string]bool{
		"0.0.0.0:8700": true, ":8700": true, "[::]:8700": true, "127.0.0.1:8700": true, "[::1]:8700": true, "localhost:8700": true,
		"127.0.0.1:8701": false, "10.0.0.7:8700": false, "edda.internal:8700": false, "http://127.0.0.1:8700": false, "8700": false,
	} {
		if reachedByDefault(addr) != want {
			t.Errorf("a process that listens on %s is reached at %s: want %v", addr, node.DefaultAddr, want)
		}
	}
}

func TestAURLToListenOnNamesTheVariableOfCallers(t *testing.T) {
	dir := folder(t, map[string]string{"order.yaml": orderSaga})
	for _, args := range [][]string{
		{"run", dir, "--data", t.TempDir(), "--nats-url", "nats://127.0.0.1:1"},
		{"dev", dir, "--data", t.TempDir(), "--nats-addr", "127.0.0.1:0"},
	} {
		const want = "edda: EDDA_ADDR=https://edda.internal:8700: it says where edda run and edda dev listen, as host:port; the server that commands call is named by EDDA_URL\n"
		if code, _, said := shell(t, []string{"EDDA_ADDR=https://edda.internal:8700"}, args...); code != exitUsage || !strings.HasSuffix(said, want) {
			t.Errorf("%s: %d %s", args[0], code, said)
		}
	}
	const flag = `address "https://edda.internal:8700": want host:port`
	if code, _, said := shell(t, nil, "run", dir, "--data", t.TempDir(), "--addr", "https://edda.internal:8700"); code != exitUsage || !strings.Contains(said, flag) {
		t.Errorf("%d %s", code, said)
	}
}

// TestEveryFlagOfRunSetsAKey: a flag without a key would be taken and do nothing.
func TestEveryFlagOfRunSetsAKey(t *testing.T) {
	term := &terminal{}
	defaults, err := term.loadConfig("", nil)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := defaults.YAML()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"role": "saga", "mycelium-protocol": "rest", "tenants": "acme", "api-http-ip": "127.0.0.2", "api-ws-ip": "127.0.0.2"}
	term.runCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "config" {
			return
		}
		flags := term.runCommand().Flags()
		value := values[f.Name]
		if value == "" {
			value = map[string]string{"bool": "true", "int": "7", "string": "x"}[f.Value.Type()]
		}
		if err := flags.Set(f.Name, value); err != nil {
			t.Fatal(err)
		}
		c, err := term.loadConfig("", flags)
		if err != nil {
			t.Fatalf("--%s %s: %v", f.Name, value, err)
		}
		if text, err := c.YAML(); err != nil || string(text) == string(plain) {
			t.Errorf("--%s %s changes nothing: %v", f.Name, value, err)
		}
	})
}
