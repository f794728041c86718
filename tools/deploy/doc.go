// Package deploy holds the tests of the folder deploy/: each file there is read, rendered,
// installed or run as its users would. It has no code of its own.
//
// The tests are of one goroutine and load much, so the race detector leaves them out.
package deploy
