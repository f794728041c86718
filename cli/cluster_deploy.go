package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"edda/internal/backoff"
	"edda/manifests"
	"edda/server"
)

// deployWait is longer than a takeover, in which nobody answers.
const deployWait = 30 * time.Second

func (c *client) clusterDeploy() *cobra.Command {
	skipTests, acceptSkew, check := false, false, false
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "deploy PATH...", Short: "Make manifests the next revision, on all nodes",
		Long: `Make manifests the next revision, on all nodes. PATH is a file or a folder, as for edda
run; descriptions of gRPC services in a folder go with it. The owner checks all of
them and runs their tests. If one has an error or fails, nothing changes. Else the
owner runs them at once, and the other nodes after a takeover. The files run already?
Then nothing changes either.`,
		Example: "  edda cluster deploy manifests --why \"the new discount\"\n  edda cluster deploy shop.yaml --skip-tests --why \"the test is wrong, the saga is needed now\"",
		Args:    args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, paths []string) error {
			query := url.Values{}
			for _, f := range []struct {
				set         bool
				flag, param string
			}{{skipTests, "--skip-tests", "skip_tests"}, {acceptSkew, "--accept-skew", "accept_skew"}} {
				if !f.set {
					continue
				}
				if err := c.reasoned(f.flag); err != nil {
					return err
				}
				query.Set(f.param, "true")
			}
			if check {
				query.Set("check", "true")
			}
			if wait < 0 {
				return usagef("--wait %s: want 0s or more", wait)
			}
			raw, err := c.deploy(cmd.Context(), paths, query, wait)
			if err != nil {
				return err
			}
			var d server.Deployed
			if err := json.Unmarshal(raw, &d); err != nil {
				return fmt.Errorf("decode the answer: %w", err)
			}
			if c.output == outputJSON {
				return indented(c.term.out, raw)
			}
			c.warn(d.Problems)
			said := fmt.Sprintf("revision %d runs", d.Revision)
			if check {
				said = fmt.Sprintf("the files may be the next revision; revision %d runs", d.Revision)
			} else if !d.Changed {
				said = fmt.Sprintf("revision %d runs already, with these files", d.Revision)
			}
			return c.acted(raw, fmt.Sprint(d.Revision), said, nil)
		},
	}
	c.registerReason(cmd)
	cmd.Flags().BoolVar(&skipTests, "skip-tests", false, "take the manifests in although some of their tests fail; needs --why")
	cmd.Flags().BoolVar(&acceptSkew, "accept-skew", false, "deploy also what may lose or double events while shards run two revisions; needs --why")
	cmd.Flags().BoolVar(&check, "check", false, "only judge the manifests, by the owner of each shard; nothing changes")
	cmd.Flags().DurationVar(&wait, "wait", deployWait, "how long to try again while no node answers or owns the store")
	c.output.register(cmd)
	return cmd
}

// deploy sends the files. It may send them again, because files that run already change nothing.
func (c *client) deploy(ctx context.Context, paths []string, query url.Values, wait time.Duration) ([]byte, error) {
	files, err := manifests.Sources(server.MaxDeployment, paths...)
	if errors.Is(err, manifests.ErrNoManifest) {
		return nil, usagef("%w", err)
	}
	if err != nil {
		return nil, err
	}
	var order server.DeployOrder
	for _, f := range files {
		order.Body.Files = append(order.Body.Files, server.ManifestFile(f))
	}
	text, err := json.Marshal(order.Body)
	if err != nil {
		return nil, err
	}
	path := "/cluster/manifests"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	c.within = server.DeployTimeout
	until := time.Now().Add(wait)
	for {
		raw, err := c.call(ctx, http.MethodPost, path, text)
		var refused *refusedError
		again := err != nil && (!errors.As(err, &refused) || refused.status == http.StatusBadGateway || refused.status == http.StatusServiceUnavailable)
		if !again || time.Now().After(until) || backoff.Wait(ctx, clusterEvery) != nil {
			return raw, err
		}
	}
}

func (c *client) clusterManifests() *cobra.Command {
	to := ""
	cmd := &cobra.Command{
		Use: "manifests", Short: "Show the revision of the manifests, or write its files", Args: args(cobra.NoArgs),
		Long: `Show the revision of the manifests that the cluster runs: who took it in, and its
files. With --to they are written into a folder. With several shards it is the
revision of the first one, or of the one that --shard names; revisions count by
shard. edda cluster status says if shards run different files.`,
		Example: "  edda cluster manifests\n  edda cluster manifests --to running && diff -r running/manifests manifests",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var r server.Revision
			raw, err := c.get(cmd.Context(), "/cluster/manifests", &r)
			if err != nil {
				return err
			}
			if to != "" {
				if err := writeRevision(to, r); err != nil {
					return err
				}
			}
			if c.output == outputTable {
				fmt.Fprintf(c.term.out, "revision %d, by %s at %s: %s\n", r.Revision, printable(r.By), r.Time.Format(time.RFC3339), printable(cmp.Or(r.Why, "no reason given")))
			}
			return revisionFiles().print(c.term, c.output, raw, r.Files)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "folder for the files; it must not exist")
	c.output.register(cmd)
	return cmd
}

func revisionFiles() listing[server.ManifestFile] {
	return listing[server.ManifestFile]{
		id: func(f server.ManifestFile) string { return f.Name },
		columns: []column[server.ManifestFile]{
			{"file", func(f server.ManifestFile) string { return f.Name }},
			{"bytes", func(f server.ManifestFile) string { return fmt.Sprint(len(f.Content)) }},
		},
	}
}

// writeRevision writes the files into a new folder, so that none of another revision is among them.
func writeRevision(dir string, r server.Revision) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	var all []manifests.Source
	for _, f := range r.Files {
		all = append(all, manifests.Source(f))
	}
	return manifests.WriteSources(dir, all)
}
