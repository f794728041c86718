package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"edda/retention"
	"edda/server"
	"edda/store"
)

func (t *terminal) gcCommand() *cobra.Command {
	v := &storeVerb{client: client{term: t}}
	var dry, trust bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove rows past their retention time, or list them", Args: args(cobra.NoArgs),
		Long: `Remove at once all rows past their retention time: finished instances, history,
claims of the effect ledger, dead letters, audits, and texts of versions that nothing
needs any more. A running Edda does the same once an hour. If a process holds the
store, that process does it.` + shardsHelp,
		Example: "  edda gc --dry-run\n  edda gc --data /var/lib/edda --why \"before the move\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			for name, set := range map[string]bool{"dry_run": dry, "trust_clock": trust} {
				if set {
					q.Set(name, "true")
				}
			}
			return either(cmd.Context(), v, true, "/admin/gc?"+q.Encode(), func(ctx context.Context, db *openedStore) (retention.Report, error) {
				return db.maintenance.Collect(ctx, server.Collect{Operator: v.actor(), DryRun: dry, TrustClock: trust}, v.progress)
			}, func(r retention.Report) error {
				return v.show(r, func() { v.printCollected(r) })
			})
		},
	}
	v.register(cmd)
	v.registerReason(cmd)
	v.output.register(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print the number and bytes of the rows to remove")
	cmd.Flags().BoolVar(&trust, "trust-clock", false, "accept a date that is more than a month after the last clean-up")
	return cmd
}

func (v *storeVerb) printCollected(r retention.Report) {
	var lines [][]string
	var bytes int64
	for _, k := range r.Kinds {
		lines = append(lines, []string{string(k.Kind), strconv.Itoa(k.Rows), strconv.FormatInt(k.Bytes, 10)})
		bytes += k.Bytes
	}
	rows(v.term.out, []string{"kind", "rows", "bytes"}, lines)
	did := "removed"
	if r.DryRun {
		did = "would be removed"
	}
	fmt.Fprintf(v.term.out, "%d rows, %s, %s; took %s\n", r.Rows(), size(bytes), did, r.Took.Round(time.Millisecond))
	if !r.DryRun && r.Rows() > 0 {
		fmt.Fprintln(v.term.out, "the file keeps its size and uses the space again; edda compact gives it back")
	}
}

func (t *terminal) compactCommand() *cobra.Command {
	v := &storeVerb{client: client{term: t}}
	cmd := &cobra.Command{
		Use: "compact", Short: "Return the free space of the store's file", Args: args(cobra.NoArgs),
		Long: `Copy the store into a new file, compare the two, and put the new one in place.
A process that holds the store does it while it works: its commits wait some
milliseconds at the end, and the answer says how long. The disk needs free space
for the store's live data.` + shardsHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return either(cmd.Context(), v, true, "/admin/compact", func(ctx context.Context, db *openedStore) (store.Compaction, error) {
				return db.maintenance.Compact(ctx, v.actor(), v.progress)
			}, func(c store.Compaction) error {
				return v.show(c, func() {
					fmt.Fprintf(v.term.out, "%s, %s before; took %s, of which commits waited %s\n",
						size(c.After), size(c.Before), c.Took.Round(time.Millisecond), c.Pause.Round(10*time.Microsecond))
				})
			})
		},
	}
	v.register(cmd)
	v.registerReason(cmd)
	v.output.register(cmd)
	return cmd
}
