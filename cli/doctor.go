package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"edda"
	"edda/server"
)

func (t *terminal) doctorCommand() *cobra.Command {
	v := &storeVerb{client: client{term: t}}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check a store, and list instances that wait for nothing", Args: args(cobra.NoArgs),
		Long: `Check the store: its pages, rows, counters, indexes and chains. Then list the
unfinished instances that wait for no timer, step, child, person or dead letter:
only an event or an operator can move them. Exit code 1 if something contradicts
itself.` + shardsHelp,
		Example: "  edda doctor --data /var/lib/edda\n  edda doctor --addr 127.0.0.1:8700 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := 0
			err := either(cmd.Context(), v, false, "/admin/doctor", func(ctx context.Context, db *openedStore) (server.Doctor, error) {
				return db.maintenance.Doctor(ctx, v.progress)
			}, func(d server.Doctor) error {
				findings += len(d.Findings)
				return v.show(d, func() { v.printDoctor(d) })
			})
			if err == nil && findings > 0 {
				return &silentError{}
			}
			return err
		},
	}
	v.register(cmd)
	v.registerReason(cmd)
	v.output.register(cmd)
	return cmd
}

func (v *storeVerb) printDoctor(d server.Doctor) {
	for _, f := range d.Findings {
		fmt.Fprintln(v.term.out, "wrong:", printable(f))
	}
	var lines [][]string
	for _, i := range d.Idle {
		lines = append(lines, []string{i.Tenant, i.Saga, i.Correlation, string(i.Status), edda.FormatTime(i.Since)})
	}
	if len(lines) > 0 {
		fmt.Fprintln(v.term.out, "instances that wait for nothing; only an event or an operator can move them:")
		rows(v.term.out, []string{"tenant", "saga", "key", "status", "since"}, lines)
	}
	if more := d.IdleTotal - len(d.Idle); more > 0 {
		fmt.Fprintf(v.term.out, "and %d more\n", more)
	}
	if ahead := time.Until(d.Committed); ahead > time.Hour {
		fmt.Fprintf(v.term.out, "the last commit is %s in the future: the clock was ahead, and what was written since is kept for so much longer\n", ahead.Round(time.Hour))
	}
	fmt.Fprintf(v.term.out, "store %s: %d findings in %d rows; %d instances wait for nothing; commit %d at %s; %s, of which %s free\n",
		d.ID, len(d.Findings), d.Rows, d.IdleTotal, d.Commit, edda.FormatTime(d.Committed), size(d.Size.Bytes), size(d.Size.Free))
}
