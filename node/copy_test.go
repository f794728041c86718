package node

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/server"
	"edda/standby"
	"edda/store"
)

// TestACopyHoldsTheLog: while a node copies the store it beats the record that the copy will have, so that the log is
// not trimmed behind it. A store that was too old is removed, and one that was not of the log is kept, the last one
// only.
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
	st.settings.Data, st.agreed.Store = t.TempDir(), db.ID()
	cut := 0
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b := st.beat(); b.LSN != 7 || b.Following {
			t.Errorf("it beats %+v meanwhile", b)
		}
		w.Header().Set(server.BackupBytes, strconv.Itoa(backup.Len()))
		_, _ = w.Write(backup.Bytes()[cut:])
	}))
	defer owner.Close()
	for _, test := range []struct {
		name  string
		why   error
		aside int // stores that it has kept
	}{
		{"nothing there", errNoCopy, 0},
		{"diverged", standby.ErrDiverged, 1},
		{"diverged again", standby.ErrDiverged, 1},
		{"too old", cluster.ErrTrimmed, 0},
	} {
		testkit.Must(t, st.copyFrom(t.Context(), owner.URL, 7, test.why))
		if b := st.beat(); b.LSN != 7 {
			t.Errorf("%s: it beats %+v after the copy", test.name, b)
		}
		kept, err := filepath.Glob(filepath.Join(st.dir(), store.FileName+".before-*"))
		if err != nil || len(kept) != test.aside {
			t.Errorf("%s: it has kept %v, %v", test.name, kept, err)
		}
	}
	cut = 1
	if err := st.copyFrom(t.Context(), owner.URL, 7, errNoCopy); err == nil || st.beat().LSN != 0 {
		t.Errorf("a copy that broke off: %v, and it beats %+v", err, st.beat())
	}
	if _, err := os.Stat(filepath.Join(st.dir(), copying)); !os.IsNotExist(err) {
		t.Errorf("what has come of it stays: %v", err)
	}
}
