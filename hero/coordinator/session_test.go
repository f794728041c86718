package coordinator

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"edda/hero"
	"edda/internal/testkit"
)

// TestAClientWrittenFromTheDocuments runs a whole session of a client that has
// none of our code, over HTTP and over WebSocket, in every shape of parameters.
func TestAClientWrittenFromTheDocuments(t *testing.T) {
	w := newWorld(t, Options{})
	c := running(t, w, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "testdata/session.py", "http://"+c.HTTPAddr(), c.WSAddr()).CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, context := range []uint32{2, 3} {
		raw, err := w.db.Client(context)
		testkit.Must(t, err)
		// Each message was created eight times; who takes the key finds no message.
		if keys := raw.LRange(t.Context(), hero.MsgOut, 0, -1).Val(); len(keys) != 1 || keys[0] != "message:41:101" {
			t.Errorf("msg_out of context %d holds %v", context, keys)
		}
	}
}
