package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"edda"
	"edda/internal/testkit"
	"edda/retention"
	"edda/server"
	"edda/store"
)

// shardsStub answers as a node of a cluster with several shards does.
type shardsStub struct {
	addr    string
	backups [][]byte                       // of each shard
	rows    int                            // of a tenant, in each shard
	calls   []string                       // "METHOD path" and "shard N"; the commands make one call at a time
	instead func(http.ResponseWriter) bool // answers in its place
	shard   string                         // that the call at hand names
}

// newShardsStub starts a cluster of n shards; 0 for one with one store.
func newShardsStub(t *testing.T, n int) *shardsStub {
	t.Helper()
	s := &shardsStub{}
	for i := range n {
		s.backups = append(s.backups, shardBackup(t, edda.Shard{Index: i, Of: n}))
	}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(h.Close)
	s.addr = h.URL
	return s
}

// shardBackup is the backup of a new store of a shard.
func shardBackup(t *testing.T, shard edda.Shard) []byte {
	t.Helper()
	db := testkit.Value[*store.DB](t)(store.Open(t.TempDir(), store.Options{Share: edda.Share{Cluster: "shop", Shard: shard}}))
	defer db.Close()
	snapshot := testkit.Value[*store.Snapshot](t)(db.Snapshot())
	defer snapshot.Close()
	var out bytes.Buffer
	testkit.Must(t, snapshot.WriteTo(t.Context(), &out))
	return out.Bytes()
}

func (s *shardsStub) serve(w http.ResponseWriter, r *http.Request) {
	s.shard = r.Header.Get(server.ShardHeader)
	call := r.Method + " " + r.URL.String()
	if s.shard != "" {
		call += " shard " + s.shard
	}
	s.calls = append(s.calls, call)
	if s.instead != nil && s.instead(w) {
		return
	}
	shard, err := strconv.Atoi(s.shard)
	if len(s.backups) > 0 && (err != nil || shard >= len(s.backups)) {
		w.Header().Set(server.ShardsHeader, strconv.Itoa(len(s.backups)))
		refuseCall(w, http.StatusUnprocessableEntity, "say which one is meant with --shard")
		return
	}
	var result any
	switch r.URL.Path {
	case "/admin/gc":
		result = retention.Report{DryRun: true}
	case "/admin/compact":
		result = store.Compaction{Before: 2048, After: 1024}
	case "/admin/doctor":
		result = server.Doctor{Meta: store.Meta{ID: "S" + s.shard}}
	default:
		w.Header().Set(server.BackupBytes, strconv.Itoa(len(s.backups[shard])))
		w.Header().Set(server.BackupRows, strconv.Itoa(s.rows))
		_, _ = w.Write(s.backups[shard])
		return
	}
	_ = json.NewEncoder(w).Encode(server.Line{Result: result})
}

// refuseCall answers with a problem.
func refuseCall(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"detail": detail})
}

// lose leaves a shard without an owner.
func (s *shardsStub) lose(shard int) {
	s.instead = func(w http.ResponseWriter) bool {
		if s.shard != strconv.Itoa(shard) {
			return false
		}
		w.Header().Set("Retry-After", "1")
		refuseCall(w, http.StatusServiceUnavailable, "no node owns the store now")
		return true
	}
}

// edda runs a command on the cluster.
func (s *shardsStub) edda(t *testing.T, args ...string) (code int, out, said string) {
	t.Helper()
	s.calls = nil
	return shell(t, []string{"USER=ann", "EDDA_URL=" + s.addr}, args...)
}

// called compares the calls since the command began.
func (s *shardsStub) called(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.calls, want) {
		t.Errorf("the calls are %q, want %q", s.calls, want)
	}
}

func TestCommandsOnAStoreGoThroughAllShards(t *testing.T) {
	s := newShardsStub(t, 2)
	for _, tt := range []struct {
		path, want string
		args       []string
	}{
		{"/admin/gc?dry_run=true", "shard 0\nKIND  ROWS  BYTES\n0 rows, 0 B, would be removed; took 0s\nshard 1\nKIND  ROWS  BYTES\n0 rows, 0 B, would be removed; took 0s\n", []string{"gc", "--dry-run"}},
		{"/admin/compact", "shard 0\n1 KiB, 2 KiB before; took 0s, of which commits waited 0s\nshard 1\n1 KiB, 2 KiB before; took 0s, of which commits waited 0s\n", []string{"compact"}},
		{"/admin/doctor", "shard 0\nstore S0: 0 findings in 0 rows; 0 instances wait for nothing; commit 0 at 0001-01-01T00:00:00.000Z; 0 B, of which 0 B free\n" +
			"shard 1\nstore S1: 0 findings in 0 rows; 0 instances wait for nothing; commit 0 at 0001-01-01T00:00:00.000Z; 0 B, of which 0 B free\n", []string{"doctor"}},
	} {
		code, out, said := s.edda(t, tt.args...)
		if code != exitDone || out != tt.want || said != "" {
			t.Errorf("%q: %d\n%s%s\nwant\n%s", tt.args, code, out, said, tt.want)
		}
		s.called(t, "POST "+tt.path, "POST "+tt.path+" shard 0", "POST "+tt.path+" shard 1")
		code, out, said = s.edda(t, append(tt.args, "--shard", "1")...)
		if _, last, _ := strings.Cut(tt.want, "shard 1\n"); code != exitDone || out != last || said != "" {
			t.Errorf("%q of one shard: %d\n%s%s\nwant\n%s", tt.args, code, out, said, last)
		}
		s.called(t, "POST "+tt.path+" shard 1")
	}
	_, out, _ := s.edda(t, "doctor", "-o", "json")
	for documents, i := json.NewDecoder(strings.NewReader(out)), 0; i < 2; i++ {
		var d server.Doctor
		if err := documents.Decode(&d); err != nil || d.ID != fmt.Sprint("S", i) {
			t.Errorf("document %d: %v %+v", i, err, d)
		}
		if i == 1 && documents.More() {
			t.Errorf("more than two documents: %s", out)
		}
	}
}

func TestACommandOnOneStoreMakesOneCall(t *testing.T) {
	one := newShardsStub(t, 0)
	code, out, said := one.edda(t, "compact")
	if code != exitDone || out != "1 KiB, 2 KiB before; took 0s, of which commits waited 0s\n" || said != "" {
		t.Errorf("%d\n%s%s", code, out, said)
	}
	one.called(t, "POST /admin/compact")
}

// A process that refuses the call for another reason is not asked again.
func TestARefusalIsNotOneOfShards(t *testing.T) {
	s := newShardsStub(t, 2)
	s.instead = func(w http.ResponseWriter) bool {
		refuseCall(w, http.StatusForbidden, "this token is not of an admin")
		return true
	}
	dir := filepath.Join(t.TempDir(), "b")
	for _, args := range [][]string{{"compact"}, {"backup", dir}} {
		if code, out, said := s.edda(t, args...); code != exitFailed || out != "" || !strings.HasSuffix(said, "this token is not of an admin\n") || len(s.calls) != 1 {
			t.Errorf("%d %q\n%s%s", code, s.calls, out, said)
		}
	}
	if got := names(t, filepath.Dir(dir)); len(got) > 0 {
		t.Errorf("files are left: %q", got)
	}
}

func TestAShardThatFailsEndsTheCommand(t *testing.T) {
	s := newShardsStub(t, 4)
	for lost, want := range []string{
		"edda: shard 0: no node owns the store now\n",
		"edda: shard 1: no node owns the store now; the shards before it are done\n",
	} {
		s.lose(lost)
		if code, out, said := s.edda(t, "gc"); code != exitFailed || said != want || strings.Count(out, "took") != lost {
			t.Errorf("%d\n%s%s\nwant %s", code, out, said, want)
		}
		if len(s.calls) != lost+2 {
			t.Errorf("the calls are %q", s.calls)
		}
	}
}

// TestAFindingInOneShardIsExitCodeOne: the shards after it are checked, too.
func TestAFindingInOneShardIsExitCodeOne(t *testing.T) {
	s := newShardsStub(t, 2)
	for damaged := range 2 {
		s.instead = func(w http.ResponseWriter) bool {
			if s.shard != strconv.Itoa(damaged) {
				return false
			}
			_ = json.NewEncoder(w).Encode(server.Line{Result: server.Doctor{Findings: []string{"a row too many"}}})
			return true
		}
		code, out, said := s.edda(t, "doctor")
		if code != exitFailed || said != "" || !strings.Contains(out, fmt.Sprintf("shard %d\nwrong: a row too many\n", damaged)) {
			t.Errorf("%d\n%s%s", code, out, said)
		}
		s.called(t, "POST /admin/doctor", "POST /admin/doctor shard 0", "POST /admin/doctor shard 1")
	}
}

// names lists a folder.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	for _, e := range testkit.Value[[]os.DirEntry](t)(os.ReadDir(dir)) {
		out = append(out, e.Name())
	}
	return out
}

func TestABackupOfShardsIsAFolder(t *testing.T) {
	s, dir := newShardsStub(t, 2), filepath.Join(t.TempDir(), "b")
	code, out, said := s.edda(t, "backup", dir+"/")
	if code != exitDone || said != "" || strings.Count(out, "sha256") != 2 || !strings.HasPrefix(out, "shard 0\n"+filepath.Join(dir, "shard-0.db")+": ") {
		t.Errorf("%d\n%s%s", code, out, said)
	}
	s.called(t, "POST /admin/backup", "POST /admin/backup shard 0", "POST /admin/backup shard 1")
	same := func() {
		t.Helper()
		for i, want := range s.backups {
			if got := testkit.Value[[]byte](t)(os.ReadFile(filepath.Join(dir, fmt.Sprintf("shard-%d.db", i)))); !bytes.Equal(got, want) {
				t.Errorf("shard-%d.db is not the backup of that shard", i)
			}
		}
	}
	same()
	if code, _, said := s.edda(t, "backup", dir); code != exitUsage || !strings.Contains(said, "is there already") || len(s.calls) != 0 {
		t.Errorf("again: %d %s %q", code, said, s.calls)
	}
	write(t, filepath.Join(dir, "notes"), "of an operator")
	s.backups[1] = shardBackup(t, edda.Shard{Index: 1, Of: 2})
	if code, out, said := s.edda(t, "backup", dir, "--force", "-o", "json"); code != exitDone || said != "" || strings.Count(out, `"sha256"`) != 2 || strings.Contains(out, "shard 0") {
		t.Errorf("with --force: %d\n%s%s", code, out, said)
	}
	same()
	if got := names(t, dir); !slices.Equal(got, []string{"notes", "shard-0.db", "shard-1.db"}) {
		t.Errorf("the folder has %q", got)
	}
	file := filepath.Join(t.TempDir(), "one.db")
	if code, _, said := s.edda(t, "backup", file, "--shard", "1"); code != exitDone || !bytes.Equal(testkit.Value[[]byte](t)(os.ReadFile(file)), s.backups[1]) {
		t.Errorf("one shard: %d %s", code, said)
	}
	s.called(t, "POST /admin/backup shard 1")
	if code, _, said := s.edda(t, "backup", file, "--force"); code != exitUsage || !strings.Contains(said, "is a file, and the backup of 2 shards is a folder") {
		t.Errorf("over a file: %d %s", code, said)
	}
	s.called(t, "POST /admin/backup")
	s.rows = 1
	if code, _, said := s.edda(t, "backup", filepath.Join(t.TempDir(), "acme"), "--tenant", "acme"); code != exitDone {
		t.Errorf("one tenant: %d %s", code, said)
	}
	s.called(t, "POST /v1/backup", "POST /v1/backup shard 0", "POST /v1/backup shard 1")
	s.rows = 0
	if code, _, said := s.edda(t, "backup", filepath.Join(t.TempDir(), "acne"), "--tenant", "acne"); code != exitFailed || !strings.Contains(said, "no shard has anything of a tenant acne") {
		t.Errorf("a tenant that is not there: %d %s", code, said)
	}
}

// TestABackupOfShardsThatBreaksOff keeps the files that are whole.
func TestABackupOfShardsThatBreaksOff(t *testing.T) {
	s, dir := newShardsStub(t, 4), filepath.Join(t.TempDir(), "b")
	s.lose(0)
	if code, _, said := s.edda(t, "backup", dir); code != exitFailed || said != "edda: shard 0: no node owns the store now\n" {
		t.Errorf("%d %s", code, said)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("an empty folder is left")
	}
	s.instead = func(w http.ResponseWriter) bool {
		if s.shard != "2" {
			return false
		}
		w.Header().Set(server.BackupBytes, strconv.Itoa(len(s.backups[2])))
		_, _ = w.Write(s.backups[2][:len(s.backups[2])-1]) // a part
		return true
	}
	code, _, said := s.edda(t, "backup", dir)
	for _, want := range []string{"edda: shard 2: write the backup: ", "it broke off after", "; the shards before it are done, and a repetition with --force replaces their files in " + dir + "\n"} {
		if code != exitFailed || !strings.Contains(said, want) {
			t.Errorf("%d: %q is not in %s", code, want, said)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"shard-0.db", "shard-1.db"}) {
		t.Errorf("the folder has %q", got)
	}
	s.instead = nil
	if code, _, said := s.edda(t, "backup", dir, "--force"); code != exitDone || len(names(t, dir)) != 4 {
		t.Errorf("%d %s", code, said)
	}
}

// shardFiles makes a folder with backups.
func shardFiles(t *testing.T, files map[string]edda.Shard) string {
	t.Helper()
	dir := t.TempDir()
	for name, shard := range files {
		write(t, filepath.Join(dir, name), string(shardBackup(t, shard)))
	}
	return dir
}

func TestABackupOfShardsIsRestored(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	dir := shardFiles(t, map[string]edda.Shard{"shard-0.db": {Index: 0, Of: 2}, "shard-1.db": {Index: 1, Of: 2}})
	code, out, said := shell(t, nil, "restore", dir, "--data", data)
	if code != exitDone || said != "" || strings.Count(out, "all sound") != 2 || strings.Count(out, restoredMeans) != 1 || !strings.HasSuffix(out, restoredMeans) ||
		!strings.HasPrefix(out, "shard 0\n"+filepath.Join(data, "shard-0", "store", store.FileName)+" is store") {
		t.Errorf("%d\n%s%s", code, out, said)
	}
	for i := range 2 {
		db := testkit.Value[*store.DB](t)(store.Open(filepath.Join(data, fmt.Sprintf("shard-%d", i), "store"), store.Options{}))
		if want := (edda.Share{Cluster: "shop", Shard: edda.Shard{Index: i, Of: 2}}); db.Share() != want {
			t.Errorf("the folder of shard %d has %s", i, db.Share())
		}
		testkit.Must(t, db.Close())
	}
	if code, _, said := shell(t, nil, "restore", dir, "--data", data); code != exitFailed || !strings.Contains(said, "edda: shard 0: ") || !strings.Contains(said, "is a store already") {
		t.Errorf("again: %d %s", code, said)
	}
	code, out, said = shell(t, nil, "restore", dir, "--data", data, "--force", "-o", "json")
	if code != exitDone || said != "" || strings.Count(out, `"aside"`) != 2 || strings.Contains(out, "shard 0\n") || strings.Contains(out, restoredMeans) {
		t.Errorf("with --force: %d\n%s%s", code, out, said)
	}
}

func TestARestoreOfSomeShardsIsRefused(t *testing.T) {
	of := func(i, n int) edda.Shard { return edda.Shard{Index: i, Of: n} }
	for name, tt := range map[string]struct {
		files map[string]edda.Shard
		want  string
		left  []string
	}{
		"one is missing":      {map[string]edda.Shard{"shard-0.db": of(0, 4), "shard-1.db": of(1, 4), "shard-3.db": of(3, 4)}, "has no shard-2.db, and 3 other backups of shards", nil},
		"the first one":       {map[string]edda.Shard{"shard-1.db": of(1, 2)}, "has no shard-0.db", nil},
		"the last one":        {map[string]edda.Shard{"shard-0.db": of(0, 4), "shard-1.db": of(1, 4), "shard-2.db": of(2, 4)}, "has the backups of 3 shards", nil},
		"the second half":     {map[string]edda.Shard{"shard-0.db": of(0, 4), "shard-1.db": of(1, 4)}, "shard 0: ", nil},
		"a name of its own":   {map[string]edda.Shard{"shard-0.db": of(0, 2), "shard-01.db": of(1, 2)}, "has no shard-1.db", nil},
		"all but one":         {map[string]edda.Shard{"shard-0.db": of(0, 2)}, "has the backups of 1 shards", nil},
		"none":                {nil, "has the backups of 0 shards", nil},
		"those of each other": {map[string]edda.Shard{"shard-0.db": of(1, 2), "shard-1.db": of(0, 2)}, "shard-0.db has shard 1 of 2 of cluster shop, and not shard 0 of 2", nil},
		"one of another":      {map[string]edda.Shard{"shard-0.db": of(0, 2), "shard-1.db": of(1, 4)}, "shard-1.db has shard 1 of 4 of cluster shop, and not shard 1 of 2; the shards before it are done, and a repetition with --force moves their stores aside", []string{"shard-0"}},
		"a store of all keys": {map[string]edda.Shard{"shard-0.db": {}, "shard-1.db": {}}, "shard-0.db has all keys, and not shard 0 of 2", nil},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			code, out, said := shell(t, nil, "restore", shardFiles(t, tt.files), "--data", data)
			if code != exitFailed || !strings.Contains(said, tt.want) || strings.Contains(out, restoredMeans) {
				t.Errorf("%d\n%s%s", code, out, said)
			}
			if got := names(t, data); !slices.Equal(got, tt.left) {
				t.Errorf("the data folder has %q", got)
			}
		})
	}
}
