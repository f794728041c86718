package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"edda/store/format"
)

// Deployment is a revision of the manifests of a cluster. It is in the store, so each copy has the one with which its
// sagas ran, whatever files lie on its machine.
type Deployment struct {
	Revision uint64    `json:"revision"` // grows by 1 with each
	Time     time.Time `json:"time"`     // in a cluster with several shards that of the deployment, in all of them
	By       string    `json:"by"`
	Why      string    `json:"why,omitempty"`
	// Files are the manifests and the files beside them that their effects read. [DB.Deployed] leaves them out.
	Files []DeployedFile `json:"-"`
}

// DeployedFile is one file of a revision.
type DeployedFile struct {
	Name    string `json:"name"` // with slashes, and local: see [filepath.IsLocal]
	Content []byte `json:"content"`
}

// Hash returns a short name of the files, which others do not have.
func (d Deployment) Hash() string {
	h := sha256.New()
	for _, f := range slices.SortedFunc(slices.Values(d.Files), func(a, b DeployedFile) int { return cmp.Compare(a.Name, b.Name) }) {
		fmt.Fprintf(h, "%q %d\n%s", f.Name, len(f.Content), f.Content)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Deployed returns the newest revision of the manifests, without its files. Only the store of a cluster has one.
func (d *DB) Deployed() (r Deployment, found bool, err error) {
	return metaRow[Deployment](d, format.MetaDeployed, "the revision of the manifests")
}

// DeployedFiles returns the files of the newest revision.
func (d *DB) DeployedFiles() (files []DeployedFile, err error) {
	files, _, err = metaRow[[]DeployedFile](d, format.MetaDeployedFiles, "the files of the revision")
	return files, err
}

// Deployed is [DB.Deployed].
func (r *Replica) Deployed() (d Deployment, found bool, err error) { return r.db.Deployed() }

// DeployedFiles is [DB.DeployedFiles].
func (r *Replica) DeployedFiles() ([]DeployedFile, error) { return r.db.DeployedFiles() }
