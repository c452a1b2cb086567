-- The tables of the job sync. Whoever runs the database makes them:
-- psql -f plugins/examples/sync/schema.sql

-- How far each item has come, and the highest fence that was seen of it.
create table sync_progress (
	job      text   not null,
	item     int    not null,
	fence    bigint not null,
	position bigint not null,
	primary key (job, item)
);

-- What came from the API. An order that comes twice is an error: nothing here forgives it.
create table orders (
	city    text   not null,
	id      bigint not null,
	product text   not null,
	cents   bigint not null,
	primary key (city, id)
);

-- Sums that would be wrong if a page were added twice.
create table revenue (
	city   text   primary key,
	orders bigint not null,
	cents  bigint not null
);
