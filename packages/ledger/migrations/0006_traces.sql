-- Where the request that a payment was presented with was traced: 16 bytes of the trace's id, 8 of the span's. Null: it wasn't.
alter table presentation add column trace bytea check (octet_length(trace) = 24);
