package redisdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// The errors that callers of this package tell apart.
var (
	// ErrNotFound means that there is no such object.
	ErrNotFound = errors.New("not found")
	// ErrIllegal means that the object's status does not allow the step.
	ErrIllegal = errors.New("illegal step")
	// ErrExists means that another object has the id.
	ErrExists = errors.New("exists already")
	// ErrDenied means that the actor lacks the right.
	ErrDenied = errors.New("permission denied")
	// ErrEmpty means that no key came into the queue in time.
	ErrEmpty = errors.New("queue is empty")
)

// unreadable holds a *hero.FieldError for each hash that a list could not read.
type unreadable []error

func (u unreadable) Error() string   { return errors.Join(u...).Error() }
func (u unreadable) Unwrap() []error { return u }

// Unreadable splits the error of a list, or of reading one object: the hashes that cannot be
// read, and any other error.
func Unreadable(err error) ([]*hero.FieldError, error) {
	all := unreadable{err}
	errors.As(err, &all)
	var out []*hero.FieldError
	for _, e := range all {
		var field *hero.FieldError
		if e != nil && !errors.As(e, &field) {
			return nil, err
		}
		if field != nil {
			out = append(out, field)
		}
	}
	return out, nil
}

// StorageError says what Redis refused, or that it could not be reached, and what to do
// about it. Nearly all are edda.Temporary.
type StorageError struct {
	Op      string // the attempt, in a few words
	Context uint32 // the number of the database
	Advice  string
	Class   error // edda.Temporary or edda.Permanent
	Err     error // of Redis or the network; nil if this package refused
}

func (e *StorageError) Error() string {
	where := ""
	if e.Context != 0 {
		where = fmt.Sprintf(" in context %d", e.Context)
	}
	if e.Err == nil {
		return fmt.Sprintf("%s%s: %s", e.Op, where, e.Advice)
	}
	return fmt.Sprintf("%s%s: redis: %v: %s", e.Op, where, e.Err, e.Advice)
}

func (e *StorageError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

// outOfRange begins the error of Redis about a database that it does not have.
const outOfRange = "ERR DB index is out of range"

const lacksRight = "the Redis user lacks a right: see Redis permissions in docs/HERO.md"

// noCluster is the advice about a Redis Cluster. A context is a database, and a cluster has
// only one; a step of a job touches keys of several slots.
const noCluster = "this is a Redis Cluster, which does not serve: name a Redis that is none; for high availability let Sentinels watch it, redis-sentinel://host:port,…/master"

// refusals lists the advice for an error of Redis by its beginning.
func refusals() []struct{ says, advice string } {
	return []struct{ says, advice string }{
		{outOfRange, "a context is the Redis database of its number: set `databases N` in redis.conf, with N above the largest context, and restart Redis"},
		{"NOAUTH", "give the user and the password in the Redis URL"},
		{"WRONGPASS", "give the right user and password in the Redis URL"},
		{"failed to authenticate", "give the right user and password in the Redis URL"},
		{"NOPERM", lacksRight},
		{"ERR The user executing the script", lacksRight},
		{"LOADING", "Redis reads its data from disk and answers when it has done so"},
		{"READONLY", "this Redis is a replica, which nothing can be written to: give the address of the primary, or the URL of its Sentinels"},
		{"OOM", "Redis has no memory left: raise its maxmemory, or delete what is not needed"},
		{"MISCONF", "Redis cannot save to its disk: see its log"},
		{"MASTERDOWN", "the replica has lost its primary: give the address of the primary"},
		{"NOREPLICAS", "Redis has too few replicas to take writes: see min-replicas-to-write"},
		{"MOVED", noCluster}, {"CROSSSLOT", noCluster}, {"CLUSTERDOWN", noCluster}, {"ERR SELECT is not allowed in cluster mode", noCluster},
		{"BUSY", "another program's script keeps Redis busy"},
		{"ERR max number of clients", "Redis has too many clients: raise its maxclients"},
		{"ERR unknown command", "Redis 6.2 or newer is needed"},
	}
}

// wrongType begins the error of Redis about a key that holds another type.
const wrongType = "WRONGTYPE"

// Explain classifies an error of a raw Client and adds advice, as every error of this
// package has it. nil stays nil.
func (d *DB) Explain(op string, in uint32, err error) error { return d.refused(op, in, err) }

// refused classifies an error of Redis and adds advice.
func (d *DB) refused(op string, in uint32, err error) error {
	var done *StorageError
	var field *hero.FieldError
	switch {
	case err == nil, errors.As(err, &done), errors.Is(err, ErrNotFound), errors.Is(err, ErrIllegal), errors.Is(err, ErrExists), errors.Is(err, ErrDenied), errors.Is(err, ErrEmpty):
		return err
	case errors.As(err, &field):
		return edda.Classify(edda.Permanent, "%s: %w", op, err)
	case errors.Is(err, errBusy):
		return &StorageError{Op: op, Context: in, Class: edda.Temporary, Advice: err.Error()}
	}
	e := &StorageError{Op: op, Context: in, Class: edda.Temporary, Err: err, Advice: d.advice(err)}
	if strings.Contains(err.Error(), wrongType) {
		e.Class, e.Advice = edda.Permanent, "another program keeps something else under that key: it is left as it is"
	}
	return e
}

// advice says what to do about an error of Redis or the network.
func (d *DB) advice(err error) string {
	text := err.Error()
	for _, r := range refusals() {
		if strings.HasPrefix(text, r.says) || strings.Contains(text, ": "+r.says) {
			return r.advice
		}
	}
	var said redis.Error
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "the caller did not wait for it"
	case strings.Contains(text, "all sentinels specified in configuration are unreachable"):
		return "check that the Sentinels run, and know a master of that name that is up: " + d.where
	case errors.As(err, &said):
		return "see Redis's documentation"
	case strings.Contains(text, "x509") || strings.Contains(text, "tls:"):
		return "check the CA and the client certificate for the Redis at " + d.where
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "the Redis at " + d.where + " is slow or hangs"
	}
	if d.options.TLSConfig != nil {
		return "check that Redis runs at " + d.where + ", speaks TLS there, and takes the client certificate, or needs none"
	}
	return "check that Redis runs at " + d.where + ", and without TLS"
}
