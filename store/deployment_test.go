package store

import (
	"bytes"
	"testing"
)

func TestARevisionOfTheManifestsIsStored(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	if d, found, err := db.Deployed(); err != nil || found {
		t.Fatalf("a store of a process that is alone has %+v, %v", d, err)
	}
	first := Deployment{Revision: 1, Time: noon, By: "ann", Files: []DeployedFile{{"shop/order.yaml", []byte("saga: order\n")}, {"api.pb", []byte{0, 255, 10}}}}
	db.commit(t, Change{Deployed: &first})
	second := Deployment{Revision: 2, Time: noon, By: "bob", Why: "the new discount", Files: []DeployedFile{{"order.yaml", bytes.Repeat([]byte("saga"), MaxChange/3)}}}
	db.commit(t, Change{Deployed: &second})
	db.stop()
	db = open(t, dir, Options{})
	d, found, err := db.Deployed()
	d.Files = must(db.DeployedFiles())
	same(t, "deployed", []any{d, found, err}, []any{second, true, error(nil)})
	db.commit(t, Change{Deployed: &Deployment{}})
	if d, found, err := db.Deployed(); err != nil || found || len(must(db.DeployedFiles())) > 0 {
		t.Errorf("after the removal there is %+v, %v", d, err)
	}
	db.check(t)
}
