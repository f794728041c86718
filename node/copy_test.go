package node

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/server"
	"edda/store"
)

// TestACopyHoldsTheLog: while a node copies the store it beats that it needs the log from there on. A store of this log
// is removed if it was merely too old; if it was not of the log, the last one is kept. One of an earlier log may have
// what the cluster lost, so it is kept in any case.
func TestACopyHoldsTheLog(t *testing.T) {
	db, stop := testkit.OpenStore(t, t.TempDir(), store.Options{})
	defer stop()
	testkit.Commit(t, db, store.Change{Checkpoints: []edda.Checkpoint{{Stream: "S", Seq: 1}}})
	s, err := db.Snapshot()
	testkit.Must(t, err)
	defer s.Close()
	var backup bytes.Buffer
	testkit.Must(t, s.WriteTo(t.Context(), &backup))

	st := &stay{log: zap.NewNop(), node: "n2"}
	st.settings.Data, st.agreed.Store, st.agreed.Created = t.TempDir(), db.ID(), time.Unix(200, 0)
	cut := 0
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b := st.beat(); b.Needs != 7 || b.LSN != 0 || b.Following {
			t.Errorf("it beats %+v meanwhile", b)
		}
		w.Header().Set(server.BackupBytes, strconv.Itoa(backup.Len()))
		_, _ = w.Write(backup.Bytes()[cut:])
	}))
	defer owner.Close()
	for _, test := range []struct {
		name  string
		began int64 // the log of the store that is there
		aside int   // stores that are kept then
	}{
		{"nothing there", 0, 0},
		{"the log was trimmed meanwhile", 0, 0},
		{"too old", 200, 0},
		{"of an earlier log", 100, 1},
	} {
		if test.began > 0 {
			testkit.Must(t, membership{"shop", time.Unix(test.began, 0), true, true}.write(st.dir()))
		}
		testkit.Must(t, st.copyFrom(t.Context(), owner.URL, 7))
		if b := st.beat(); b.Needs != 7 {
			t.Errorf("%s: it beats %+v after the copy", test.name, b)
		}
		kept, err := filepath.Glob(filepath.Join(st.dir(), store.FileName+".before-*"))
		if err != nil || len(kept) != test.aside {
			t.Errorf("%s: it has kept %v, %v", test.name, kept, err)
		}
	}
	cut = 1
	if err := st.copyFrom(t.Context(), owner.URL, 7); err == nil || st.beat().Needs != 0 {
		t.Errorf("a copy that broke off: %v, and it beats %+v", err, st.beat())
	}
	if _, err := os.Stat(filepath.Join(st.dir(), copying)); !os.IsNotExist(err) {
		t.Errorf("what has come of it stays: %v", err)
	}
	st.say(func(b *cluster.Beat) { b.Needs = 7 })
	st.tell(cluster.Mark{LSN: 8}, cluster.Ownership{})
	if b := st.beat(); b.Needs != 0 || b.LSN != 8 {
		t.Errorf("when it follows it beats %+v", b)
	}
}
