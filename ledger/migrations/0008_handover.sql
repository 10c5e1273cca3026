-- Which halves of an item another facilitator was given: 1 the provider's, 2 the fee's, 3 both. An answer that was lost is
-- asked for with the very same transfers, whatever strangers settle of them meanwhile.
alter table batch_item add column handed_over smallint check (handed_over between 1 and 3);
