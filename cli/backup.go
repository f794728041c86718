package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"edda"
	"edda/server"
	"edda/store"
)

func (t *terminal) backupCommand() *cobra.Command {
	v := &storeVerb{client: client{term: t}}
	force := false
	cmd := &cobra.Command{
		Use: "backup PATH", Short: "Copy a store consistently, also while it is in use", Args: args(cobra.ExactArgs(1)),
		Long: `Copy the store as of one moment into a file, followed by a checksum. A process
that holds the store continues to work. Pages that commits free meanwhile cannot
be reused, so its file grows, for an hour at most.

With --tenant the file is a store with the rows of that tenant alone; an admin of
that tenant may take it. Encrypted values stay encrypted, with the keyset of the
process. Run a restored one with tenants: [TENANT] and nothing else.

Of a cluster with several shards PATH becomes a folder with a file for each shard:
shard-0.db and so on, one after the other. With --shard PATH is the file of that
shard. With -o json the command prints one document for each file, in order. With
--tenant it fails if no shard has anything of the tenant.`,
		Example: "  edda backup /backup/edda-$(date +%F).db\n  edda backup --addr 10.0.0.5:8700 edda.backup\n  edda backup --tenant acme acme.db\n  edda backup --addr n1.internal:8700 /backup/shop-$(date +%F)",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err == nil && !force {
				return usagef("%s is there already: name another file, or replace it with --force", args[0])
			}
			db, err := v.open(cmd.Context(), true)
			if err != nil {
				return err
			}
			rows := 0
			backup := func(file string) error {
				b, err := v.backup(cmd.Context(), db, file)
				if err != nil {
					return err
				}
				rows += b.rows
				return v.show(b, func() { fmt.Fprintf(v.term.out, "%s: %s, sha256 %s\n", file, size(b.Bytes), b.Sum) })
			}
			if err = backup(args[0]); shardsOf(err) > 0 {
				err = v.backupShards(args[0], shardsOf(err), backup)
				if err == nil && v.tenant != "" && rows == 0 {
					err = fmt.Errorf("no shard has anything of a tenant %s: the backups in %s are empty", v.tenant, args[0])
				}
			}
			return err
		},
	}
	v.register(cmd)
	v.registerReason(cmd)
	v.output.register(cmd)
	cmd.PersistentFlags().Lookup("tenant").Usage = "only the rows of this tenant (EDDA_TENANT does not narrow a backup)"
	cmd.Flags().BoolVar(&force, "force", false, "replace the file, or the files of the shards")
	return cmd
}

// backupMade describes a backup.
type backupMade struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	Sum   string `json:"sha256"`
	rows  int    // of the tenant, where a process told them
}

// backupShards makes a folder with a backup of each shard. It replaces files, because the caller has looked for them.
func (v *storeVerb) backupShards(dir string, n int, backup func(file string) error) error {
	dir = filepath.Clean(dir)
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return usagef("%s is a file, and the backup of %d shards is a folder: name another path", dir, n)
	}
	err := os.Mkdir(dir, 0o700)
	created := err == nil
	if created {
		err = store.SyncDir(filepath.Dir(dir))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write the backups: %w", err)
	}
	err = v.eachShard(n, ", and a repetition with --force replaces their files in "+dir, func(shard int) error {
		return backup(filepath.Join(dir, shardName(shard)+".db"))
	})
	if err != nil && created {
		_ = os.Remove(dir) // if it is empty
	}
	return err
}

// backup writes a temporary file beside the target, syncs it, verifies it and renames it. Without an opened store it asks
// the process.
func (v *storeVerb) backup(ctx context.Context, db *openedStore, path string) (backupMade, error) {
	var sent *http.Response
	if db == nil { // the answer may be that PATH is to be a folder
		var err error
		if sent, err = v.sendBackup(ctx); err != nil {
			return backupMade{}, err
		}
		defer sent.Body.Close()
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return backupMade{}, fmt.Errorf("write the backup: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // after a rename there is nothing to remove
	if sent != nil {
		err = v.fetch(sent, f)
	} else {
		_, err = db.maintenance.Backup(ctx, v.actor(), v.tenant, func(b store.Backup) io.Writer { return &counted{w: f, of: b.Bytes, tell: v.progress} })
		err = errors.Join(err, db.stop())
	}
	v.progress("")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return backupMade{}, fmt.Errorf("write the backup: %w", err)
	}
	made, err := v.keepBackup(ctx, f.Name(), path)
	if sent != nil {
		made.rows, _ = strconv.Atoi(sent.Header.Get(server.BackupRows)) // a number, from an Edda
	}
	return made, err
}

func (v *storeVerb) keepBackup(ctx context.Context, temp, path string) (backupMade, error) {
	sum, _, err := store.CheckBackup(ctx, temp)
	if err != nil {
		return backupMade{}, fmt.Errorf("the backup broke off; nothing was kept: %w", err)
	}
	info, err := os.Stat(temp)
	if err != nil {
		return backupMade{}, err
	}
	made := backupMade{File: path, Bytes: info.Size(), Sum: sum}
	// gofail: var backupChecked struct{}
	return made, errors.Join(os.Rename(temp, path), store.SyncDir(filepath.Dir(path)))
}

// sendBackup has the process begin to send a backup.
func (v *storeVerb) sendBackup(ctx context.Context) (*http.Response, error) {
	path := "/admin/backup"
	if v.tenant != "" {
		path = "/v1/backup"
	}
	return v.begin(ctx, http.MethodPost, path)
}

// fetch copies the backup that a process sends.
func (v *storeVerb) fetch(resp *http.Response, to io.Writer) error {
	of, err := strconv.ParseInt(resp.Header.Get(server.BackupBytes), 10, 64)
	if err != nil {
		return fmt.Errorf("what answers at %s sends no backup: is it a newer or an older Edda?", v.base())
	}
	n, err := io.Copy(&counted{w: to, of: of, tell: v.progress}, resp.Body)
	if err == nil && n != of {
		err = fmt.Errorf("it broke off after %d of %d bytes; the log of the process may say why", n, of)
	}
	return err
}

// counted is a writer that reports its progress.
type counted struct {
	w     io.Writer
	n, of int64
	tell  func(any)
	told  time.Time
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	if time.Since(c.told) > time.Second/4 {
		c.told = time.Now()
		c.tell(fmt.Sprintf("%s of %s", size(c.n), size(c.of)))
	}
	return n, err
}

func (t *terminal) restoreCommand() *cobra.Command {
	v := &storeVerb{client: client{term: t}}
	var data string
	var force bool
	cmd := &cobra.Command{
		Use: "restore PATH", Short: "Check a backup and put it into a data folder", Args: args(cobra.ExactArgs(1)),
		Long: `Check the checksum, pages and rows of a backup, and put it into the folder of a
store that no process holds. A damaged backup writes nothing. The output at the
end explains the consequences of an older store; docs/OPERATING.md says more.

If PATH is a folder with the backups of all shards of a cluster, shard-0.db and so on,
each of them goes into a folder of its own in the data folder: shard-0 and so on. With
-o json the command prints one document for each, in order.`,
		Example: "  edda restore /backup/edda-2026-03-01.db --data /var/lib/edda\n  edda restore /backup/shop-2026-03-01 --data /var/lib/edda",
		RunE: func(cmd *cobra.Command, args []string) error {
			if data == "" {
				return usagef("name the data folder with --data")
			}
			c, err := v.term.loadConfig(v.config, nil)
			if err != nil {
				return err
			}
			options, err := c.StoreOptions()
			if err != nil {
				return err
			}
			tell := func(rows int) { v.progress(fmt.Sprintf("%d rows checked", rows)) }
			if info, statErr := os.Stat(args[0]); statErr == nil && info.IsDir() {
				err = v.restoreShards(args[0], func(file string, shard edda.Shard) (store.Restored, error) {
					return store.RestoreShard(cmd.Context(), file, storeFolder(filepath.Join(data, shardName(shard.Index))), shard, force, options.Seal, tell)
				})
			} else {
				err = v.restored(store.Restore(cmd.Context(), args[0], storeFolder(data), force, options.Seal, tell))
			}
			if err == nil && v.output != outputJSON {
				fmt.Fprint(v.term.out, restoredMeans)
			}
			return err
		},
	}
	v.output.register(cmd)
	cmd.Flags().StringVar(&data, "data", "", "data folder to restore into")
	cmd.Flags().BoolVar(&force, "force", false, "move an existing store aside")
	cmd.Flags().StringVar(&v.config, "config", "", "configuration file of the store's process, for its keyset and other settings (EDDA_CONFIG)")
	return cmd
}

// storeFolder is the folder of the store in a data folder, or that of a new one.
func storeFolder(data string) string {
	if dir, ok := storeAt(data); ok {
		return dir
	}
	return filepath.Join(data, "store")
}

// restoreShards restores the backups of all shards, which lie in a folder. It begins only if none is missing.
func (v *storeVerb) restoreShards(dir string, restore func(file string, shard edda.Shard) (store.Restored, error)) error {
	n, err := shardBackups(dir)
	if err != nil {
		return err
	}
	return v.eachShard(n, ", and a repetition with --force moves their stores aside", func(shard int) error {
		return v.restored(restore(filepath.Join(dir, shardName(shard)+".db"), edda.Shard{Index: shard, Of: n}))
	})
}

// shardBackups is the number of shards whose backups are in a folder. Some of them alone are an error.
func shardBackups(dir string) (n int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	there := map[string]bool{}
	for _, e := range entries {
		if ok, _ := filepath.Match("shard-*.db", e.Name()); ok { // the pattern is valid
			there[e.Name()] = true
		}
	}
	for ; n < len(there); n++ {
		if file := shardName(n) + ".db"; !there[file] {
			return 0, fmt.Errorf("%s has no %s, and %d other backups of shards: a restore needs those of all shards", dir, file, len(there))
		}
	}
	if n < 2 || n&(n-1) != 0 {
		return 0, fmt.Errorf("%s has the backups of %d shards, and a restore needs those of all shards of a cluster: of 2, 4, 8 and so on", dir, n)
	}
	return n, nil
}

// restored shows what a restore put in place.
func (v *storeVerb) restored(r store.Restored, err error) error {
	v.progress("")
	if err != nil {
		return err
	}
	return v.show(r, func() { v.printRestored(r) })
}

func (v *storeVerb) printRestored(r store.Restored) {
	out := v.term.out
	fmt.Fprintf(out, "%s is store %s at commit %d of %s, %s ago: %d rows, all sound\n",
		r.Path, r.ID, r.Commit, edda.FormatTime(r.Committed), age(time.Since(r.Committed)), r.Rows)
	if r.Sum == "" {
		fmt.Fprintln(out, "it had no checksum: a value that was changed and still reads well goes unnoticed")
	}
	if r.Tenant != "" {
		fmt.Fprintf(out, "it has what is of the tenant %s alone: run it with tenants: [%s], and no other process for that tenant\n", r.Tenant, r.Tenant)
	}
	if r.Aside != "" {
		fmt.Fprintf(out, "the store that was there is %s now\n", r.Aside)
	}
	for _, p := range r.Positions {
		fmt.Fprintf(out, "reading of %s goes on after message %d of %s\n", p.Stream, p.Seq, edda.FormatTime(p.Time))
	}
}

// restoredMeans is what whoever restores must know before the start.
const restoredMeans = `What was committed since comes again from the streams, in the order in which they
stored it, and gives the same work under the same ids; timers that came due since fire
in between, as they did. Nothing goes out before all of that was applied, and effects
whose results are in the streams are not called again. Commands to the gateway and
messages go out a second time, under the same ids; the audit of that time is lost.
- Effects that were under way when the process stopped, and those of schedules, may be
  called once more, with the same idempotency key, where their claims were in this
  store (effects.ledger: local). With effects.ledger: shared they are not: the claims
  are in JetStream.
- Where the streams no longer hold what came since, the start is refused, and says
  what is missing; --accept-stream-loss goes on without it.
- The store has the id it had: never start two copies of it. The process that had
  the other copy must have stopped; its lease, if it was killed, ends after 15 s.
`

func age(d time.Duration) string {
	if d >= 48*time.Hour {
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
	return d.Round(time.Second).String()
}
