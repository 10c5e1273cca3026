// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {VectorWallet} from "./mocks/Wallets.sol";
import {IFiatToken} from "./support/IFiatToken.sol";
import {SettlementTest} from "./support/SettlementTest.sol";

/// @notice Settles the payments that TypeScript signed and packed, from test/vectors/payments.json and splitters.json.
/// The SDK's tests also read these files.
contract VectorsTest is SettlementTest {
    string private _json;

    function setUp() public override {
        super.setUp();
        _json = vm.readFile("test/vectors/payments.json");
    }

    function _key(string memory list, uint256 index, string memory field) private pure returns (string memory) {
        return string.concat(".", list, "[", vm.toString(index), "].", field);
    }

    function _count(string memory list) private view returns (uint256 count) {
        while (vm.keyExistsJson(_json, string.concat(".", list, "[", vm.toString(count), "]"))) ++count;
    }

    function _uint(uint256 index, string memory field) private view returns (uint256) {
        return vm.parseJsonUint(_json, _key("payments", index, field));
    }

    function _address(uint256 index, string memory field) private view returns (address) {
        return vm.parseJsonAddress(_json, _key("payments", index, field));
    }

    function _word(uint256 index, string memory field) private view returns (bytes32) {
        return vm.parseJsonBytes32(_json, _key("payments", index, field));
    }

    function _hasFee(uint256 index) private view returns (bool) {
        return vm.keyExistsJson(_json, _key("payments", index, "fee.from"));
    }

    function _packed(uint256 index) private view returns (IBatchSettlement.Payment memory) {
        return IBatchSettlement.Payment({
            head: uint256(_word(index, "packed.head")),
            values: uint256(_word(index, "packed.values")),
            nonce: _word(index, "packed.nonce"),
            feeNonce: _word(index, "packed.feeNonce"),
            r: _word(index, "packed.r"),
            vs: _word(index, "packed.vs"),
            feeR: _word(index, "packed.feeR"),
            feeVs: _word(index, "packed.feeVs")
        });
    }

    function _vectorTerms(uint256 index) private view returns (Terms memory terms) {
        terms.from = _address(index, "authorization.from");
        terms.amount = _uint(index, "authorization.value");
        terms.fee = _hasFee(index) ? _uint(index, "fee.value") : 0;
        terms.validAfter = _uint(index, "authorization.validAfter");
        terms.validBefore = _uint(index, "authorization.validBefore");
        terms.nonce = _word(index, "authorization.nonce");
        bytes32 feeNonce = _hasFee(index) ? _word(index, "fee.nonce") : bytes32(0);
        terms.feeNonce = feeNonce == keccak256(abi.encode(terms.nonce)) ? bytes32(0) : feeNonce;
    }

    function test_default_packing() public view {
        uint256 count = _count("payments");
        vm.assertGe(count, 10, "vectors");
        for (uint256 i; i < count; ++i) {
            string memory name = vm.parseJsonString(_json, _key("payments", i, "name"));
            Terms memory terms = _vectorTerms(i);
            IBatchSettlement.Payment memory payment = _packed(i);
            vm.assertEq(address(uint160(payment.head >> 96)), terms.from, name);
            vm.assertEq(uint16(payment.head >> 80), 0, name);
            vm.assertEq(uint40(payment.head >> 40), terms.validAfter, name);
            vm.assertEq(uint40(payment.head), terms.validBefore, name);
            vm.assertEq(payment.values >> 128, terms.amount, name);
            vm.assertEq(uint128(payment.values), terms.fee, name);
            vm.assertEq(payment.nonce, terms.nonce, name);
            vm.assertEq(payment.feeNonce, terms.feeNonce, name);
        }
    }

    function test_default_digestsAndSettlement() public {
        uint256 count = _count("payments");
        for (uint256 i; i < count; ++i) _settleVector(i);
    }

    /// Deploys the token at the address and with the name in the vector's domain, and settles the vector's packed
    /// payment.
    function _settleVector(uint256 i) private {
        string memory name = vm.parseJsonString(_json, _key("payments", i, "name"));
        vm.chainId(_uint(i, "domain.chainId"));
        address token = _address(i, "domain.verifyingContract");
        usdc = IFiatToken(token);
        if (token.code.length == 0) {
            _placeUsdc(token, vm.parseJsonString(_json, _key("payments", i, "domain.name")));
        }
        vm.assertEq(usdc.DOMAIN_SEPARATOR(), _word(i, "domainSeparator"), name);

        Terms memory terms = _vectorTerms(i);
        payees[0] = _address(i, "authorization.to");
        Half memory provider = _provider(terms);
        vm.assertEq(_digest(terms, provider), _word(i, "authorization.digest"), name);
        IBatchSettlement.Batch memory batch = _batch();
        if (_hasFee(i)) {
            batch.feeRecipient = _address(i, "fee.to");
            Half memory fee = Half(batch.feeRecipient, terms.fee, _word(i, "fee.nonce"));
            vm.assertEq(_digest(terms, fee), _word(i, "fee.digest"), name);
        }

        if (terms.validBefore - terms.validAfter < 2) return _expectNothing(batch, i);
        vm.warp(terms.validAfter > NOW ? terms.validAfter + 1 : terms.validBefore > NOW ? NOW : terms.validBefore - 1);
        bytes[] memory signatures = vm.parseJsonBytesArray(_json, _key("payments", i, "signatures"));
        if (signatures.length > 0) vm.etch(terms.from, address(new VectorWallet()).code);
        _fund(terms);
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](1);
        payments[0] = _packed(i);
        vm.assertEq(
            settlement.settle(batch, payees, payments, signatures),
            terms.fee == 0 ? bytes(hex"10") : bytes(hex"11"),
            name
        );
        // Removes the wallet's code, because the next vector's buyer may be a plain account with this address.
        vm.etch(terms.from, "");
        vm.warp(NOW);
    }

    /// The validity window contains no second, so the token must reject what was packed.
    function _expectNothing(IBatchSettlement.Batch memory batch, uint256 i) private {
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](1);
        payments[0] = _packed(i);
        _expectNothingSettled(uint128(payments[0].values) == 0 ? bytes(hex"30") : bytes(hex"34"));
        settlement.settle(batch, payees, payments, new bytes[](0));
    }

    function _vectorBatch(string memory list, uint256 i) private view returns (IBatchSettlement.Batch memory) {
        return IBatchSettlement.Batch({
            token: vm.parseJsonAddress(_json, _key(list, i, "batch.token")),
            feeRecipient: vm.parseJsonAddress(_json, _key(list, i, "batch.feeRecipient")),
            batchId: vm.parseJsonBytes32(_json, _key(list, i, "batch.batchId")),
            trigger: uint8(vm.parseJsonUint(_json, _key(list, i, "batch.trigger"))),
            callGasLimit: uint64(vm.parseJsonUint(_json, _key(list, i, "batch.callGasLimit")))
        });
    }

    function test_default_batchCalldata() public view {
        uint256 count = _count("batches");
        vm.assertGe(count, 1, "vectors");
        for (uint256 i; i < count; ++i) {
            string[] memory names = vm.parseJsonStringArray(_json, _key("batches", i, "payments"));
            address[] memory batchPayees = vm.parseJsonAddressArray(_json, _key("batches", i, "payees"));
            IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](names.length);
            uint256 signatureIndex;
            for (uint256 k; k < names.length; ++k) {
                uint256 vector = _find(names[k]);
                payments[k] = _packed(vector);
                payments[k].head |= _indexOf(batchPayees, _address(vector, "authorization.to")) << 80;
                // Signature positions in a vector start at 0; in a batch they continue from the payments before.
                if (payments[k].vs == 0) payments[k].r = bytes32(signatureIndex++);
                if (payments[k].feeVs == 0 && uint128(payments[k].values) != 0) {
                    payments[k].feeR = bytes32(signatureIndex++);
                }
            }
            bytes memory data = abi.encodeCall(
                IBatchSettlement.settle,
                (
                    _vectorBatch("batches", i),
                    batchPayees,
                    payments,
                    vm.parseJsonBytesArray(_json, _key("batches", i, "signatures"))
                )
            );
            vm.assertEq(data, vm.parseJsonBytes(_json, _key("batches", i, "calldata")), "calldata");
        }
    }

    function test_default_authorizationsCalldata() public view {
        uint256 count = _count("authorizationBatches");
        vm.assertGe(count, 2, "vectors");
        for (uint256 i; i < count; ++i) {
            bytes memory data = abi.encodeCall(
                IBatchSettlement.settleAuthorizations,
                (
                    _vectorBatch("authorizationBatches", i),
                    vm.parseJsonAddressArray(_json, _key("authorizationBatches", i, "payees")),
                    _vectorAuthorizations(i),
                    vm.parseJsonBytesArray(_json, _key("authorizationBatches", i, "signatures")),
                    _vectorSweep(i)
                )
            );
            bytes memory expected = vm.parseJsonBytes(_json, _key("authorizationBatches", i, "calldata"));
            vm.assertEq(data, expected, "calldata");
        }
    }

    function _vectorAuthorizations(uint256 i)
        private
        view
        returns (IBatchSettlement.Authorization[] memory authorizations)
    {
        string[] memory names = vm.parseJsonStringArray(_json, _key("authorizationBatches", i, "payments"));
        address[] memory batchPayees = vm.parseJsonAddressArray(_json, _key("authorizationBatches", i, "payees"));
        authorizations = new IBatchSettlement.Authorization[](names.length);
        uint256 signatureIndex;
        for (uint256 k; k < names.length; ++k) {
            uint256 vector = _find(names[k]);
            IBatchSettlement.Payment memory payment = _packed(vector);
            authorizations[k].head = payment.head | _indexOf(batchPayees, _address(vector, "authorization.to")) << 80;
            authorizations[k].value = payment.values >> 128;
            authorizations[k].nonce = payment.nonce;
            authorizations[k].r = payment.vs == 0 ? bytes32(signatureIndex++) : payment.r;
            authorizations[k].vs = payment.vs;
        }
    }

    function _vectorSweep(uint256 i) private view returns (IBatchSettlement.Sweep memory sweep) {
        sweep.factory = vm.parseJsonAddress(_json, _key("authorizationBatches", i, "sweep.factory"));
        sweep.gasLimit = uint64(vm.parseJsonUint(_json, _key("authorizationBatches", i, "sweep.gasLimit")));
        sweep.splits = vm.parseJsonUintArray(_json, _key("authorizationBatches", i, "sweep.splits"));
    }

    function test_default_splitters() public {
        _json = vm.readFile("test/vectors/splitters.json");
        uint256 count = _count("splitters");
        vm.assertGe(count, 4, "vectors");
        for (uint256 i; i < count; ++i) {
            string memory name = vm.parseJsonString(_json, _key("splitters", i, "name"));
            uint256 split = uint256(vm.parseJsonBytes32(_json, _key("splitters", i, "split")));
            address provider = vm.parseJsonAddress(_json, _key("splitters", i, "terms.provider"));
            vm.assertEq(address(uint160(split >> 96)), provider, name);
            vm.assertEq(uint48(split >> 48), vm.parseJsonUint(_json, _key("splitters", i, "terms.providerShare")), name);
            vm.assertEq(uint48(split), vm.parseJsonUint(_json, _key("splitters", i, "terms.platformShare")), name);
            bytes memory arguments = abi.encodePacked(
                split,
                vm.parseJsonAddress(_json, _key("splitters", i, "terms.platform"))
            );
            address splitter = Clones.predictDeterministicAddressWithImmutableArgs(
                vm.parseJsonAddress(_json, _key("splitters", i, "implementation")),
                arguments,
                0,
                vm.parseJsonAddress(_json, _key("splitters", i, "factory"))
            );
            vm.assertEq(splitter, vm.parseJsonAddress(_json, _key("splitters", i, "address")), name);
        }
    }

    function _find(string memory name) private view returns (uint256 index) {
        bytes32 wanted = keccak256(bytes(name));
        while (keccak256(bytes(vm.parseJsonString(_json, _key("payments", index, "name")))) != wanted) ++index;
    }

    function _indexOf(address[] memory list, address item) private pure returns (uint256 index) {
        while (list[index] != item) ++index;
    }
}
