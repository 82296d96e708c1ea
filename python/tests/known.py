"""Tests that fail today, by the cause. A test that passes must leave its list."""

KNOWN = {
    "an op whose output is larger than the whole budget does not raise OutOfMemory": """
        test_a_budget_below_one_tensor[1] test_a_budget_below_one_tensor[8] test_a_budget_below_one_tensor[100]
        test_a_smaller_batch_after_out_of_memory
        little:cycles_are_collected little:in_place_reads_itself little:resize_and_set little:storage_is_resized
        little:sparse_tensors little:compressed_sparse_tensors little:opaque_tensors little:tensors_on_meta
        little:fake_tensors little:a_subclass little:a_function_mode little:control_flow_operators little:written_by_numpy
        little:numpy_functions_of_tensors little:dlpack little:iteration_and_branches little:storages little:storages_copied
        little:pickles little:save_and_load little:save_and_load_files little:array_interfaces little:threads_write_in_turn
        little:data_loader_workers little:fork_with_tensors_of_its_own little:fork_that_reads little:views_only_are_returned
        little:a_view_outlives_its_base little:split_and_chunk
    """,
    "a tensor stays evicted after an OutOfMemory within an optimizer": """
        test_random_program[13] test_random_program[16] test_random_program[23]
    """,
    "share_memory_ frees memory twice": """
        calm:module_moves calm:shared_memory calm:processes stress:module_moves stress:shared_memory stress:processes
        little:module_moves little:shared_memory little:processes
    """,
    "values within sparse and nested tensors are read past the dispatcher": "stress:sparse_tensors stress:nested_tensors",
    "a value is computed again by an operator that its library has taken away": "stress:library_is_destroyed",
    "more is reserved for mkldnn_rnn_layer than it takes": "little:recurrent_layers",
}


def reason(test):
    """Why a test fails, by its name; None if it should pass."""
    for cause, names in KNOWN.items():
        for name in names.split():
            how, _, check = name.rpartition(":")
            full = {"": name, "little": f"test_same_bits_in_little_memory[{check}]"}.get(how, f"test_same_bits[{how}-{check}]")
            if test == full:
                return cause
    return None
