-- What a buyer signed too much on a tab is credited once the tab has settled. Before, the buyer hasn't paid it: who signed far more
-- than was charged, and emptied the wallet, was served for all of that.

alter table tabs.tab add column credits bigint[]; -- what is credited once it has settled, an amount a line; null: nothing, or it is
create index tab_credits on tabs.tab ((payer || id)) where credits is not null;
