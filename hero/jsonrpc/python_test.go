package jsonrpc

import (
	"os/exec"
	"strings"
	"testing"
)

// A client that knows only the specifications speaks to the server.
func TestClientWrittenFromTheSpecifications(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	t.Cleanup(s.Close)
	ws := strings.Replace(listen(t, s.WebSocket()), "http", "ws", 1)
	out, err := exec.CommandContext(within(t), "python3", "testdata/client.py", listen(t, s), ws).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "checked" {
		t.Errorf("%v\n%s", err, out)
	}
}
