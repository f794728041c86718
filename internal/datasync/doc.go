// Package datasync makes the written data of a file durable at the least cost that the
// system offers. The store's WAL and the benchmark's disk floor both use it.
package datasync
