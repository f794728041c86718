package server

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// MaxDeployment bounds the files of a revision, in bytes.
const MaxDeployment = 1 << 20

// ManifestFile is a file of manifests, or one that their effects read.
type ManifestFile struct {
	Name    string `json:"name" minLength:"1" maxLength:"500" doc:"with slashes, relative to the folder that all have in common"`
	Content []byte `json:"content" doc:"the bytes of the file, in base64"`
}

// Revision is a revision of a cluster's manifests.
type Revision struct {
	Revision uint64         `json:"revision"`
	Time     time.Time      `json:"time" doc:"when it came"`
	By       string         `json:"by"`
	Why      string         `json:"why,omitempty"`
	Files    []ManifestFile `json:"files"`
}

// DeployOrder is the request of a deployment.
type DeployOrder struct {
	Operator
	SkipTests  bool `query:"skip_tests" doc:"take the manifests in although tests of theirs fail; needs a reason"`
	AcceptSkew bool `query:"accept_skew" doc:"deploy also what may lose or double events while shards run two revisions; needs a reason"`
	Check      bool `query:"check" doc:"only judge the manifests; nothing changes"`
	// On and Time are set where a call goes to several shards.
	On   string    `query:"on" doc:"the revision that must run, as number-hash; another one refuses the call, unless it has these files"`
	Time time.Time `query:"time" doc:"when the deployment began, RFC 3339; new schedules start from then on; if absent, now"`
	Body struct {
		Files []ManifestFile `json:"files" minItems:"1" maxItems:"10000"`
	}
}

// Deployed is the result of a deployment, or why it changed nothing.
type Deployed struct {
	Revision uint64    `json:"revision" doc:"that runs now; over shards that of the first one"`
	Changed  bool      `json:"changed" doc:"false if these files ran already in all shards, or were only judged"`
	Problems []Problem `json:"problems,omitempty"`
	Hash     string    `json:"hash,omitempty" doc:"of the files of the revision that runs now"`
	Time     time.Time `json:"time,omitzero" doc:"when the revision that runs now came"`
	Since    time.Time `json:"since,omitzero" doc:"the same; absent if it has other files than these"`
}

// On names the revision that runs, as [DeployOrder] does.
func (d Deployed) On() string { return fmt.Sprintf("%d-%s", d.Revision, d.Hash) }

// clusterManifests registers the routes of the manifests of a cluster.
func (s *Server) clusterManifests() {
	huma.Get(s.api, "/cluster/manifests", func(context.Context, *struct{}) (*body[Revision], error) {
		r, err := s.options.Process.Deployed()
		if err != nil {
			return nil, s.clusterFailed("show the manifests", err)
		}
		return &body[Revision]{r}, nil
	}, summary("Show the revision of the manifests that the cluster runs, with its files", "cluster"))
	huma.Post(s.api, "/cluster/manifests", s.deploy, summary("Make files the next revision of the manifests, on all nodes; nothing changes if one has an error or a failing test", "cluster"))
}

func (s *Server) deploy(ctx context.Context, q *DeployOrder) (*body[Deployed], error) {
	if q.SkipTests || q.AcceptSkew {
		if err := q.reasoned("a deployment without tests, or with a skew of shards,"); err != nil {
			return nil, err
		}
	}
	size, names := 0, map[string]bool{}
	for _, f := range q.Body.Files {
		if !filepath.IsLocal(f.Name) || f.Name != path.Clean(f.Name) || strings.Contains(f.Name, `\`) || names[f.Name] {
			return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("file %q: want names with slashes that lead into no other folder, each once", f.Name))
		}
		names[f.Name] = true
		size += len(f.Content)
	}
	for name := range names {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if names[dir] {
				return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("file %q: there is a file %q, so it is no folder", name, dir))
			}
		}
	}
	if size > MaxDeployment {
		return nil, huma.Error413RequestEntityTooLarge(fmt.Sprintf("the files have %d bytes, and a revision has at most %d", size, MaxDeployment))
	}
	d, err := s.options.Process.Deploy(ctx, *q)
	if err != nil {
		return nil, s.clusterFailed("deploy the manifests", err)
	}
	if failed(d.Problems) {
		return nil, huma.Error422UnprocessableEntity("the manifests have errors; nothing changed", detailed(d.Problems)...)
	}
	return &body[Deployed]{d}, nil
}
