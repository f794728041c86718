package cli

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADeploymentWaitsForAnOwner(t *testing.T) {
	s := newClusterStub(t)
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("saga: a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bk.db"), []byte{0}, 0o644); err != nil {
		t.Fatal(err)
	}
	answer := func(text string) bool {
		_, _ = s.answer.Write([]byte(text))
		return true
	}
	for name, tt := range map[string]struct {
		before func(call int) bool
		args   []string
		code   int
		want   string
		calls  int
	}{
		"at once":        {func(int) bool { return answer(`{"revision":3,"changed":true}`) }, nil, exitDone, "revision 3 runs\n", 1},
		"the same files": {func(int) bool { return answer(`{"revision":3}`) }, nil, exitDone, "revision 3 runs already, with these files\n", 1},
		"only judged":    {func(int) bool { return answer(`{"revision":3}`) }, []string{"--check"}, exitDone, "the files may be the next revision; revision 3 runs\n", 1},
		"a warning": {func(int) bool {
			return answer(`{"revision":3,"changed":true,"problems":[{"file":"a.yaml","line":1,"column":2,"warning":true,"message":"it never ends"}]}`)
		}, nil, exitDone, "warning: a.yaml:1:2: it never ends", 1},
		"only the number": {func(int) bool { return answer(`{"revision":3,"changed":true}`) }, []string{"-o", "ids"}, exitDone, "3\n", 1},
		"a takeover": {func(call int) bool {
			if call < 3 {
				return s.refuse(map[int]int{1: http.StatusServiceUnavailable, 2: http.StatusBadGateway}[call], "nobody owns it")
			}
			return answer(`{"revision":3}`)
		}, nil, exitDone, "runs already", 3},
		"no time to wait": {func(int) bool { return s.refuse(http.StatusServiceUnavailable, "nobody owns it") }, []string{"--wait", "0s"}, exitFailed, "nobody owns it", 1},
		"wrong":           {func(int) bool { return s.refuse(http.StatusUnprocessableEntity, "the manifests have errors") }, nil, exitFailed, "the manifests have errors", 1},
		"no reason":       {nil, []string{"--skip-tests"}, exitUsage, "say why", 0},
		"skew, no reason": {nil, []string{"--accept-skew"}, exitUsage, "--accept-skew", 0},
		"no manifest":     {nil, []string{"bk.db"}, exitUsage, "file bk.db: want manifests", 0},
		"no such file":    {nil, []string{"b.yaml"}, exitFailed, "b.yaml: no such file", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s.before = tt.before
			code, out, said := s.edda(t, append([]string{"deploy", "a.yaml"}, tt.args...)...)
			if code != tt.code || !strings.Contains(out+said, tt.want) || len(s.calls) != tt.calls {
				t.Errorf("%d %s%s, want %d %s; calls %q", code, out, said, tt.code, tt.want, s.calls)
			}
		})
	}
}

// TestADeploymentMayTakeLongerThanACall: several shards take a large revision in.
func TestADeploymentMayTakeLongerThanACall(t *testing.T) {
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	c := &client{term: &terminal{out: io.Discard, err: io.Discard}, addr: "http://127.0.0.1:1"}
	if _, err := c.deploy(ended, []string{"../manifests/examples/01-trip.yaml"}, nil, 0); err == nil || !strings.Contains(err.Error(), "no answer from http://127.0.0.1:1 within 3m0s") {
		t.Error(err)
	}
}

func TestTheManifestsOfAClusterAreWrittenOut(t *testing.T) {
	s := newClusterStub(t)
	t.Chdir(t.TempDir())
	s.before = func(int) bool {
		_, _ = s.answer.Write([]byte(`{"revision":3,"time":"2026-01-02T03:04:05Z","by":"ann","files":[{"name":"shop/a.yaml","content":"c2FnYTogYQo="}]}`))
		return true
	}
	const want = `revision 3, by ann at 2026-01-02T03:04:05Z: no reason given
FILE         BYTES
shop/a.yaml  8
`
	if code, out, said := s.edda(t, "manifests", "--to", "out"); code != exitDone || out != want {
		t.Errorf("%d %s%s", code, out, said)
	}
	if text, err := os.ReadFile("out/shop/a.yaml"); err != nil || string(text) != "saga: a\n" {
		t.Errorf("%q, %v", text, err)
	}
	if code, out, said := s.edda(t, "manifests", "--to", "out"); code != exitFailed || !strings.Contains(said, "out: file exists") {
		t.Errorf("over the files of another revision: %d %s%s", code, out, said)
	}
}
