package natsservers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/harness"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// TestTheServersAreOneCluster shows that a stream outlives one of the servers, and that none of them
// outlives Stop.
func TestTheServersAreOneCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*StartWithin)
	defer cancel()
	s, err := Start(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	nc, err := nats.Connect(s.URLs())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	created, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: size})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", []byte("before")); err != nil {
		t.Fatal(err)
	}
	leader := created.CachedInfo().Cluster.Leader
	if s.Addrs()[leader] == "" {
		t.Fatalf("%q leads the stream, and the servers are %v", leader, s.Addrs())
	}
	if running := children(t); len(running) != size {
		t.Fatalf("the servers are the processes %v", running)
	}
	s.Process(leader).Kill()
	err = harness.Poll(ctx, "the stream to have another leader", func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ack, err := js.Publish(ctx, "s", []byte("after"), jetstream.WithMsgID("after"))
		if err == nil && ack.Sequence != 2 {
			return harness.Fatal(errors.New("the first message is lost"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestAStartThatIsInterruptedLeavesNoServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Fatalf("it started: %v", err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// children are the processes that this one has started and that have not ended.
func children(t *testing.T) (out []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Fatalf("no process is known: %v", err)
	}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		// "pid (name) state parent …"
		_, after, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			out = append(out, string(text))
		}
	}
	return out
}
