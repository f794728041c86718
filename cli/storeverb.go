package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"edda/node"
	"edda/node/operator"
	"edda/server"
	"edda/store"
)

// maxLine bounds one line of a streamed answer. All findings of a check are one line.
const maxLine = 16 << 20

// storeVerb is a command on a store. It opens the file if no process holds it; otherwise it
// asks that process.
type storeVerb struct {
	client
	data   string
	config string
}

func (v *storeVerb) register(cmd *cobra.Command) {
	v.client.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&v.data, "data", "", "folder of the store (EDDA_DATA; edda-data or .edda)")
	flags.StringVar(&v.config, "config", "", "configuration file of that store's process (EDDA_CONFIG)")
}

// storeAt finds the folder of the store in a data folder.
func storeAt(data string) (string, bool) {
	for _, folder := range []string{"store", "", "runner"} {
		dir := filepath.Join(data, folder)
		if _, err := os.Stat(filepath.Join(dir, store.FileName)); err == nil {
			return dir, true
		}
	}
	return "", false
}

// folder returns the folder of the store; empty if an address is named, or if there is no
// store here.
func (v *storeVerb) folder() (string, error) {
	data := v.data
	if data == "" {
		data = v.term.getenv("EDDA_DATA")
	}
	if data != "" {
		if dir, ok := storeAt(data); ok {
			return dir, nil
		}
		return "", usagef("there is no store in %s: name its folder with --data, or its process with --addr", data)
	}
	if v.addr != "" || v.term.getenv(envURL) != "" {
		return "", nil
	}
	for _, data := range []string{node.Defaults().Data, ".edda"} {
		if dir, ok := storeAt(data); ok {
			return dir, nil
		}
	}
	return "", nil
}

// openedStore is a store that this command has opened, with its running committer.
type openedStore struct {
	*store.DB
	maintenance *operator.Maintenance
	stop        func() error
}

// open opens the store. It returns nil if a process holds the store; then the command asks
// that process. Without work the store is read-only.
func (v *storeVerb) open(ctx context.Context, work bool) (*openedStore, error) {
	dir, err := v.folder()
	if err != nil || dir == "" {
		return nil, err
	}
	c, err := v.term.loadConfig(v.config, nil)
	if err != nil {
		return nil, err
	}
	options, err := c.StoreOptions()
	if err != nil {
		return nil, err
	}
	var refused error
	if work {
		refused = store.Replicated(dir)
	}
	db, err := v.openHere(dir, options, work && refused == nil) // what is refused is opened to see whether a process holds it
	switch {
	case store.Held(err):
		return nil, v.holder(ctx, dir)
	case refused != nil && err == nil:
		return nil, errors.Join(refused, db.Close())
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, err
	case work: // another process may have made it a copy while this one waited for it
		if err := store.Replicated(dir); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return v.hold(db, c, work)
}

// openHere opens a store. A read-only one may lie in a read-only folder.
func (v *storeVerb) openHere(dir string, o store.Options, work bool) (*store.DB, error) {
	if work {
		return store.Open(dir, o)
	}
	db, readOnly, err := store.OpenToCheck(dir, o)
	if readOnly && err == nil {
		fmt.Fprintf(v.term.err, "edda: %s cannot be written: it is only read\n", dir)
	}
	if err == nil && db.CutCopy() != "" {
		fmt.Fprintf(v.term.err, "edda: %s\n", db.CutCopy())
	}
	return db, err
}

func (v *storeVerb) hold(db *store.DB, c node.Config, work bool) (*openedStore, error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	if work {
		go func() { ended <- db.Run(ctx) }()
	} else {
		ended <- nil
	}
	o := &openedStore{DB: db, stop: func() error {
		cancel()
		return errors.Join(<-ended, db.Close())
	}}
	var err error
	o.maintenance, err = c.Maintenance(db)
	if err != nil {
		return nil, errors.Join(err, o.stop())
	}
	return o, nil
}

// holder finds the process that holds a store by its address file.
func (v *storeVerb) holder(ctx context.Context, dir string) error {
	path := filepath.Join(dir, store.FileName)
	h, err := node.HolderOf(dir)
	if err != nil && v.addr == "" {
		return fmt.Errorf("a process holds %s, and does not say where it listens: name its address with --addr", path)
	}
	if v.addr == "" {
		v.addr = h.Addr
	}
	switch {
	case h.Shard.Whole():
	case v.shard == anyShard:
		v.shard = h.Shard.Index
	case v.shard != h.Shard.Index:
		return usagef("%s is that of shard %d: leave out --shard %d, or name the folder of that shard", path, h.Shard.Index, v.shard)
	}
	var info server.Info
	if _, err := v.get(ctx, "/info", &info); err != nil {
		return fmt.Errorf("a process holds %s: %w", path, err)
	}
	if h.Store != "" && info.StoreID != h.Store {
		return fmt.Errorf("a process holds %s, but the Edda at %s has another store: name the right one with --addr", path, v.base())
	}
	fmt.Fprintf(v.term.err, "edda: a process holds %s: asking it, at %s\n", path, v.base())
	return nil
}

// actor returns the actor for the audit if this command holds the store.
func (v *storeVerb) actor() server.Operator {
	return server.Operator{By: cmp.Or(v.by, v.term.getenv("USER"), osUser()), Why: v.why}
}

// begin makes a call without a timeout and returns the response.
func (v *storeVerb) begin(ctx context.Context, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, v.base()+path, http.NoBody)
	if err != nil {
		return nil, usagef("address %q: %w", v.base(), err)
	}
	resp, err := v.send(req, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return nil, fmt.Errorf("read the answer of %s: %w", v.base(), err)
		}
		return nil, refusal(resp, text)
	}
	return resp, nil
}

// ask calls a process, prints its progress and decodes the result.
func (v *storeVerb) ask(ctx context.Context, path string, into any) error {
	resp, err := v.begin(ctx, http.MethodPost, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var l struct {
			Progress string          `json:"progress"`
			Result   json.RawMessage `json:"result"`
			Problem  string          `json:"problem"`
		}
		switch err := json.Unmarshal(lines.Bytes(), &l); {
		case err != nil:
			return fmt.Errorf("decode the answer of %s: %w", v.base(), err)
		case l.Problem != "":
			return errors.New(l.Problem)
		case l.Result != nil:
			v.progress("")
			return json.Unmarshal(l.Result, into)
		}
		v.progress(l.Progress)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the answer of %s broke off: %w", v.base(), err)
	}
	return fmt.Errorf("the answer of %s broke off: is the process still there?", v.base())
}

// progress overwrites one line of a terminal.
func (v *storeVerb) progress(text any) {
	if !isTerminal(v.term.err) {
		return
	}
	fmt.Fprintf(v.term.err, "\r\x1b[K%s", printable(fmt.Sprint(text)))
}

// either runs a function on the opened store, or asks the process that holds it, and hands the result to show. A process
// with several shards is asked for each of them, unless --shard names one.
func either[T any](ctx context.Context, v *storeVerb, work bool, path string, do func(context.Context, *openedStore) (T, error), show func(T) error) error {
	db, err := v.open(ctx, work)
	if err != nil {
		return err
	}
	if db != nil {
		out, err := do(ctx, db)
		v.progress("")
		if err := errors.Join(err, db.stop()); err != nil {
			return err
		}
		return show(out)
	}
	ask := func(int) error {
		var out T
		if err := v.ask(ctx, path, &out); err != nil {
			return err
		}
		return show(out)
	}
	if err = ask(anyShard); shardsOf(err) > 0 {
		return v.eachShard(shardsOf(err), "", ask)
	}
	return err
}

// shardsHelp ends the help of a command that goes through all shards.
const shardsHelp = `

In a cluster with several shards the command goes through all of them, one after the
other, unless --shard names one. With -o json it prints one document for each, in
order.`

// shardsOf is the number of shards that a process has, if it refused a call that named none; 0 for any other error.
func shardsOf(err error) int {
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.shards
	}
	return 0
}

// eachShard runs a function for each of n shards in turn, whose calls then name the shard. It stops at the first failure,
// and says what a repetition does about the shards before it.
func (v *storeVerb) eachShard(n int, again string, do func(shard int) error) error {
	for i := range n {
		v.shard = i
		if v.output != outputJSON {
			fmt.Fprintf(v.term.out, "shard %d\n", i)
		}
		err := do(i)
		switch {
		case err != nil && i == 0:
			return fmt.Errorf("shard %d: %w", i, err)
		case err != nil:
			return fmt.Errorf("shard %d: %w; the shards before it are done%s", i, err, again)
		}
	}
	return nil
}

// shardName names the backup of a shard, and the folder of its store in the data folder of a node.
func shardName(shard int) string { return "shard-" + strconv.Itoa(shard) }

// show prints the result, as JSON with -o json.
func (v *storeVerb) show(result any, table func()) error { return v.term.show(v.output, result, table) }

// show prints a result as JSON, or calls table.
func (t *terminal) show(as outputFlag, result any, table func()) error {
	if as != outputJSON {
		table()
		return nil
	}
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("print json: %w", err)
	}
	return indented(t.out, text)
}

// size formats a number of bytes.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, u := float64(n), 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	text := fmt.Sprintf("%.1f", f)
	return strings.TrimSuffix(text, ".0") + " " + units[u]
}
