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
alter table sale add column loaded_segments integer not null default 1
    constraint sale_loaded_segments_positive check (loaded_segments > 0);

-- Until now the number could not change.
update sale set loaded_segments = segments;

-- As sale_loaded_when_finished. A release that does not know the column cannot finish a load under
-- another number of segments than the column tells: a later load would seal too few.
--
-- A trigger, since SQLite adds a check only together with a column, and then asks it of the rows
-- before the update above. The statement of a commit names none of these columns and does not pay.
create trigger sale_loaded_segments_when_finished
before update of stage, segments, loaded_segments on sale
when new.stage = 'loaded' and new.loaded_segments <> new.segments
begin
    select raise(abort, 'sale_loaded_segments_when_finished');
end;
