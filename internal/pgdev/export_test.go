package pgdev

// Fetch downloads although this machine may have a PostgreSQL.
var Fetch = fetch
