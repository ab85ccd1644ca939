-- The number of segments may change while a sale sells.
--
-- Contract. After every commit
--   * sale.loaded_segments = the number of segments under loaded_epoch, whatever is wanted by now;
--   * a sale that is loaded has as many segments as are wanted.

-- segments is the number that the newest load was asked for. A load that changes it may die when
-- Redis still sells from the old number of segments, and the load after it must seal and adopt all of
-- those: fewer would leave journals behind, with purchases that were admitted.
--
-- 1 until the first load is finished: there is nothing to seal then.
alter table sale add column loaded_segments integer not null default 1;

-- Until now the number could not change.
update sale set loaded_segments = segments;

alter table sale add constraint sale_loaded_segments_positive check (loaded_segments > 0);
-- As sale_loaded_when_finished. A release that does not know the column cannot finish a load under
-- another number of segments than the column tells: a later load would seal too few.
alter table sale add constraint sale_loaded_segments_when_finished
    check (stage <> 'loaded' or loaded_segments = segments);
